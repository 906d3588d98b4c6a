// A hint is a cause of a failed comparison that was tried and fits. Every hypothesis is applied to the
// reference's tensor, or its operation is computed again from the reference's inputs, the wrong way. A
// hypothesis is reported only if the result is what the run holds.
//
// All hypotheses are judged by one rule. The remaining error may have a thousandth (kCollapse) of the error's
// energy and of the energy of the run's values. Where the checkpoint has a noise floor, a tenth is enough, if
// it is no more than the floor allows. A wrong hypothesis does not come near a thousandth by chance. The
// noise of bf16 on top of a real bug is below it (NMSE 1e-6 to 1e-3).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "families/checkpoint_names.h"
#include "parity/compare/result.h"
#include "parity/record/tensor_set.h"

namespace qwen_image::hints {

inline constexpr double kCollapse = 1e-3;
// Of larger tensors only the first rows are tested, because several must fit into memory together.
inline constexpr int64_t kMaxHintElements = int64_t{32} << 20;

struct HintTensor {
  Shape shape;
  std::vector<float> values;
};

// Where hypotheses find the tensors they need.
struct HintContext {
  using Reader = std::function<std::optional<HintTensor>(const std::string& name)>;
  Reader ref, run;                 // by the reference's name; nothing if absent or above kMaxHintElements
  std::vector<std::string> names;  // the reference's checkpoints, in its order
  const CheckpointNames* family = nullptr;        // whose names they are; null: found from the names
  Reader ref_rows = nullptr, run_rows = nullptr;  // as ReadRows gives them, of what is above kMaxHintElements
  bool inputs_agree = true;                       // every tensor that was computed before this one is right
};

// The tensor with so much of its last axis but one that it has at most `most` elements; nothing
// if that is less than a row.
HintTensor ReadRows(const record::TensorSet& set, const record::TensorInfo& tensor, int64_t most);

// A context of two sets, which must outlive it. Apply a NameMap with TensorSet::Rename before.
HintContext MakeHintContext(const record::TensorSet& ref, const record::TensorSet& run);

// The hints for one tensor, the best first. docs/debugging.md lists their kinds. A tensor that cannot be
// tested gives the one hint "not_tested", which says why.
std::vector<compare::Hint> FindHints(const compare::TensorComparison& failed, const HintContext& context);

// Adds hints to the first tensors that failed. Later tensors mostly carry the errors of these on.
void AddHints(compare::Comparison& comparison, const record::TensorSet& ref, const record::TensorSet& run);

}  // namespace qwen_image::hints
