// What hypotheses about gated residuals share: hidden + gate · branch. Internal to hints*.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "parity/hint_search.h"

namespace qwen_image {

struct GatedSum {
  size_t half = 0;  // 0: of the attention, 1: of the MLP
  std::string hidden_name;
  HintTensor hidden, branch;

  double Hidden(int64_t i) const { return hidden.values[static_cast<size_t>(i)]; }
  double Branch(int64_t i) const { return branch.values[static_cast<size_t>(i)]; }
};

// The reference's inputs, if the checkpoint is such a sum of this stream and they were recorded.
std::optional<GatedSum> ReadGatedSum(const HintSearch& search, const BlockName& block,
                                     const StreamNames& stream);

using GateOf = std::function<double(int64_t i)>;  // for element i of the sum

bool ExplainsReference(const HintSearch& search, const GatedSum& sum, const GateOf& gate);
std::optional<HintSearch::Fit> TestGate(const HintSearch& search, const GatedSum& sum, const GateOf& gate);
// The sum with a part left out or subtracted.
bool TestPartsOfSum(HintSearch& search, const GatedSum& sum, const GateOf& gate);

}  // namespace qwen_image
