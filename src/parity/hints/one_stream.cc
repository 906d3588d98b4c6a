// Hypotheses about a stream whose blocks share one modulation (OneStreamNames). The modulation is
// [scale, gate] twice, without shifts. Gates go through a tanh. Tokens before the picture that is drawn are
// modulated for t = 0.
#include <fmt/format.h>

#include <array>

#include "parity/hints/joint_layout.h"
#include "parity/hints/residual.h"

namespace qwen_image::hints {
namespace {

constexpr int64_t kParts = 4;  // of the modulation
int64_t ScaleOf(size_t half) { return static_cast<int64_t>(2 * half); }
int64_t GateOfHalf(size_t half) { return ScaleOf(half) + 1; }

// The row of the modulation that each token takes. The prefix takes the row of t = 0, the picture that is
// drawn the row of the step.
enum class Times { kRight, kStepForAll, kZeroForAll, kSwapped };

class SharedModulation {
 public:
  // Of a tensor [2, parts · dim], for the tokens of the checkpoint.
  static std::optional<SharedModulation> Read(const HintSearch& s, const std::string& name, int64_t parts) {
    SharedModulation m;
    m.parts_ = parts;
    m.dim_ = s.ref().shape.back();
    const auto prefix = PrefixOf(s, s.count() / m.dim_);
    auto values = s.OtherRef(name, 2 * parts * m.dim_);
    if (!prefix || !values) return {};
    m.prefix_ = *prefix;
    m.values_ = std::move(values->values);
    return m;
  }

  // What belongs to element i of a tensor [1, tokens, dim].
  double At(int64_t part, int64_t i, Times times = Times::kRight) const {
    const int64_t row = RowOf(i / dim_, times);
    return values_[static_cast<size_t>((row * parts_ + part) * dim_ + i % dim_)];
  }

 private:
  int64_t RowOf(int64_t token, Times times) const {
    if (times == Times::kStepForAll) return 0;
    if (times == Times::kZeroForAll) return 1;
    const bool is_prefix = token < prefix_;
    return is_prefix == (times == Times::kRight) ? 1 : 0;
  }

  std::vector<float> values_;
  int64_t parts_ = 0, dim_ = 0, prefix_ = 0;
};

struct TimeMistake {
  Times times;
  const char *kind, *text;
};
constexpr std::array<TimeMistake, 3> kTimeMistakes = {{
    {Times::kStepForAll, "prefix_modulated_for_t",
     "Prompt and given pictures are modulated for the step's t. They take the modulation of t = 0, the "
     "second "
     "row; only the picture that is drawn takes the step's."},
    {Times::kZeroForAll, "target_modulated_for_zero",
     "The picture that is drawn is modulated for t = 0 like all before it. It takes the modulation of the "
     "step's t, the first row."},
    {Times::kSwapped, "swapped_modulation_rows",
     "The two rows of the modulation are swapped: the first is the step's and belongs to the picture that is "
     "drawn, the second is that of t = 0 and belongs to all before it."},
}};

// value(i, times): what the run holds if tokens take these rows.
template <typename Value>
bool TestTimes(HintSearch& s, const Value& value) {
  for (const TimeMistake& mistake : kTimeMistakes) {
    if (const auto fit = s.Test([&](int64_t i) { return value(i, mistake.times); })) {
      s.Add(mistake.kind, *fit, mistake.text);
      return true;
    }
  }
  return false;
}

// The operation is x · (1 + scale). `other` is the part that scales the other branch.
bool TestScaled(HintSearch& s, const HintTensor& x, const SharedModulation& m, int64_t part,
                std::optional<int64_t> other) {
  const auto at = [&](int64_t i) { return static_cast<double>(x.values[static_cast<size_t>(i)]); };
  const auto scaled = [&](int64_t i, Times times) { return at(i) * (1 + m.At(part, i, times)); };
  if (!s.ExplainsReference([&](int64_t i) { return scaled(i, Times::kRight); })) return false;
  if (const auto fit = s.Test([&](int64_t i) { return at(i) * m.At(part, i); })) {
    s.Add("missing_one_plus_scale", *fit, "The 1 of (1 + scale) is missing: the run has x · scale.");
    return true;
  }
  if (TestTimes(s, scaled)) return true;
  if (!other) return false;
  const auto fit = s.Test([&](int64_t i) { return at(i) * (1 + m.At(*other, i)); });
  if (!fit) return false;
  s.Add("wrong_modulation_half", *fit,
        "The other half of the modulation was used: its first two parts belong to the attention, the last "
        "two to the MLP.");
  return true;
}

bool TestGates(HintSearch& s, const SharedModulation& m, size_t half) {
  const int64_t part = GateOfHalf(half);
  const auto gate = [&](int64_t i, Times times) { return std::tanh(m.At(part, i, times)); };
  if (!s.ExplainsReference([&](int64_t i) { return gate(i, Times::kRight); })) return false;
  if (const auto fit = s.Test([&](int64_t i) { return m.At(part, i); })) {
    s.Add("missing_gate_tanh", *fit,
          "The gate did not go through its tanh: the run has the modulation's own values here.");
    return true;
  }
  if (const auto fit = s.Test([&](int64_t i) { return std::tanh(m.At(GateOfHalf(1 - half), i)); })) {
    s.Add("wrong_gate", *fit, "This is the gate of the other branch; the modulation is [scale, gate] twice.");
    return true;
  }
  return TestTimes(s, gate);
}

bool TestResidual(HintSearch& s, const GatedSum& sum, const SharedModulation& m) {
  const int64_t part = GateOfHalf(sum.half);
  const auto gate = [&](int64_t i) { return std::tanh(m.At(part, i)); };
  if (!ExplainsReference(s, sum, gate)) return false;
  if (TestPartsOfSum(s, sum, gate)) return true;
  if (const auto fit = TestGate(s, sum, [&](int64_t i) { return m.At(part, i); })) {
    s.Add(
        "missing_gate_tanh", *fit,
        "The gate did not go through its tanh: the run has hidden + gate · branch, not hidden + tanh(gate) · "
        "branch.");
    return true;
  }
  for (int64_t other = 0; other < kParts; ++other) {
    if (other == part) continue;
    const auto fit = TestGate(s, sum, [&](int64_t i) { return std::tanh(m.At(other, i)); });
    if (!fit) continue;
    s.Add("wrong_gate", *fit,
          fmt::format("The gate was taken from part {} of the modulation; it is part {} of [scale, gate, "
                      "scale, gate].",
                      other, part));
    return true;
  }
  return TestTimes(s, [&](int64_t i, Times times) {
    return sum.Hidden(i) + std::tanh(m.At(part, i, times)) * sum.Branch(i);
  });
}

}  // namespace

bool TestOneStreamHints(HintSearch& s, const BlockName& block) {
  const StreamNames& stream = s.family().streams.front();
  const OneStreamNames& names = *s.family().one_stream;
  const auto m = SharedModulation::Read(s, block.pass + std::string(names.modulation), kParts);
  if (!m) return false;
  for (const size_t half : {0, 1}) {
    if (IsNamed(block.rest, names.gates[half])) return TestGates(s, *m, half);
    if (!IsNamed(block.rest, stream.modulated[half])) continue;
    const auto x = s.OtherRef(block.prefix + std::string(stream.norm[half]), s.count());
    return x && TestScaled(s, *x, *m, ScaleOf(half), ScaleOf(1 - half));
  }
  const auto sum = ReadGatedSum(s, block, stream);
  return sum && TestResidual(s, *sum, *m);
}

bool TestOneStreamHeadNorm(HintSearch& s) {
  const auto m = SharedModulation::Read(s, s.name() + ".linear", 1);
  const auto x = s.OtherRef(s.name() + ".norm", s.count());
  return m && x && TestScaled(s, *x, *m, 0, std::nullopt);
}

}  // namespace qwen_image::hints
