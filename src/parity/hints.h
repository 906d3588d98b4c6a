// Hints: causes of a failed comparison that were tried and fit. Every hypothesis is applied to the
// reference's tensor (or its operation is computed once more from the reference's inputs, the wrong way), and
// is reported only if the result is what the run holds.
//
// The rule, for all of them: what is left of the error must have a thousandth of its energy, and of the
// energy of the run's values (kCollapse); or, where the checkpoint has a noise floor, a tenth, and no more
// than the floor allows. A thousandth is far below what a wrong hypothesis reaches by chance, and above the
// noise of bf16 on top of a real bug (NMSE 1e-6 to 1e-3).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "families/checkpoint_names.h"
#include "parity/comparison.h"
#include "parity/tensor_set.h"

namespace qwen_image {

inline constexpr double kCollapse = 1e-3;
// Larger tensors are not tested: several must fit into memory together.
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
  const CheckpointNames* family = nullptr;  // whose names they are; null: to be told by the names
};

// The tensors of two sets, which must outlive the context. A map's names are given by TensorSet::Rename.
HintContext MakeHintContext(const TensorSet& ref, const TensorSet& run);

// The best first. Kinds: see docs/debugging.md. A tensor that cannot be tested gives the one hint
// "not_tested", which says why.
std::vector<Hint> FindHints(const TensorComparison& failed, const HintContext& context);

// Hints for the first tensors that failed; what comes after them mostly carries their errors on.
void AddHints(Comparison& comparison, const TensorSet& ref, const TensorSet& run);

}  // namespace qwen_image
