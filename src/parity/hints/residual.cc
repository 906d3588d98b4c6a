// Hypotheses about gated residuals.
#include "parity/hints/residual.h"

#include <fmt/format.h>

namespace qwen_image::hints {

std::optional<GatedSum> ReadGatedSum(const HintSearch& s, const BlockName& block, const StreamNames& stream) {
  GatedSum sum;
  std::string branch_name;
  if (IsNamed(block.rest, stream.attention_residual)) {
    sum.half = 0;
    sum.hidden_name = block.index == 0 ? fmt::format("{}{}", block.pass, stream.input)
                                       : fmt::format("{}{}.{}{}", block.pass, block.list, block.index - 1,
                                                     stream.output.value_or(""));
    branch_name = block.prefix + std::string(stream.attention_out);
  } else if (IsOutput(block.rest, stream.output)) {
    sum.half = 1;
    sum.hidden_name = block.prefix + std::string(stream.attention_residual);
    branch_name = block.prefix + std::string(stream.mlp);
  } else {
    return {};
  }
  auto hidden = s.OtherRef(sum.hidden_name, s.count()), branch = s.OtherRef(branch_name, s.count());
  if (!hidden || !branch) return {};
  sum.hidden = std::move(*hidden);
  sum.branch = std::move(*branch);
  return sum;
}

bool ExplainsReference(const HintSearch& s, const GatedSum& sum, const GateOf& gate) {
  return s.ExplainsReference([&](int64_t i) { return sum.Hidden(i) + gate(i) * sum.Branch(i); });
}

std::optional<HintSearch::Fit> TestGate(const HintSearch& s, const GatedSum& sum, const GateOf& gate) {
  return s.Test([&](int64_t i) { return sum.Hidden(i) + gate(i) * sum.Branch(i); });
}

bool TestPartsOfSum(HintSearch& s, const GatedSum& sum, const GateOf& gate) {
  if (const auto fit = s.Test([&](int64_t i) { return sum.Hidden(i); })) {
    s.Add("residual_not_updated", *fit,
          fmt::format("The stream is still the one before this branch ({}): the gated result was not added.",
                      sum.hidden_name));
    return true;
  }
  if (const auto fit = TestGate(s, sum, [](int64_t) { return 1.0; })) {
    s.Add("missing_gate", *fit, "The gate is missing: the branch was added to the stream as it is.");
    return true;
  }
  if (const auto fit = s.Test([&](int64_t i) { return gate(i) * sum.Branch(i); })) {
    s.Add("missing_residual", *fit,
          fmt::format("The residual is missing: the gated branch replaces the stream ({}) instead of being "
                      "added to it.",
                      sum.hidden_name));
    return true;
  }
  if (const auto fit = TestGate(s, sum, [&](int64_t i) { return -gate(i); })) {
    s.Add("sign", *fit, "The gated branch was subtracted from the stream instead of added.");
    return true;
  }
  return false;
}

}  // namespace qwen_image::hints
