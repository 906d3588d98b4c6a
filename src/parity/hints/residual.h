// GatedSum: what hypotheses about gated residuals (hidden + gate · branch) share. Internal to this folder.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "parity/hints/search.h"

namespace qwen_image::hints {

struct GatedSum {
  size_t half = 0;  // 0: of the attention, 1: of the MLP
  std::string hidden_name;
  HintTensor hidden, branch;

  double Hidden(int64_t i) const { return hidden.values[static_cast<size_t>(i)]; }
  double Branch(int64_t i) const { return branch.values[static_cast<size_t>(i)]; }
};

// The reference's inputs of the sum. Nothing if the checkpoint is no such sum of this stream, or if the
// inputs were not recorded.
std::optional<GatedSum> ReadGatedSum(const HintSearch& search, const BlockName& block,
                                     const StreamNames& stream);

using GateOf = std::function<double(int64_t i)>;  // for element i of the sum

bool ExplainsReference(const HintSearch& search, const GatedSum& sum, const GateOf& gate);
std::optional<HintSearch::Fit> TestGate(const HintSearch& search, const GatedSum& sum, const GateOf& gate);
// The sum with a part left out or subtracted.
bool TestPartsOfSum(HintSearch& search, const GatedSum& sum, const GateOf& gate);

}  // namespace qwen_image::hints
