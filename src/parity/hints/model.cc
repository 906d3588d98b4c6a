// Hypotheses about a diffusion transformer's operations. The operation is computed again from the reference's
// inputs, the wrong way. First the right way must give the reference's tensor. If it does not, the inputs are
// not those of this operation, and there is no hint. Some operations have files of their own.
#include <fmt/format.h>

#include <algorithm>

#include "parity/hints/residual.h"
#include "parity/record/level.h"

namespace qwen_image::hints {
namespace {

// Of a block's modulation: [shift, scale, gate] of the attention, then of the MLP.
constexpr int64_t kModulationParts = 6;

// x [tokens, dim] and the vectors that modulate or gate it: parts of `mod`, each `dim` wide.
struct Modulation {
  HintTensor x, mod;
  int64_t dim = 0;

  double X(int64_t i) const { return x.values[static_cast<size_t>(i)]; }
  double Part(int64_t part, int64_t i) const { return mod.values[static_cast<size_t>(part * dim + i % dim)]; }
};

std::optional<Modulation> ReadModulation(const HintSearch& s, const std::string& x, const std::string& mod,
                                         int64_t parts) {
  const int64_t dim = s.ref().shape.back();
  auto x_tensor = s.OtherRef(x, s.count());
  auto mod_tensor = s.OtherRef(mod, parts * dim);
  if (!x_tensor || !mod_tensor) return {};
  return Modulation{std::move(*x_tensor), std::move(*mod_tensor), dim};
}

bool TestModulation(HintSearch& s, const Modulation& m, int64_t shift, int64_t scale, int64_t other_shift) {
  const auto modulate = [&m](int64_t i, int64_t shift_part, int64_t scale_part) {
    return m.X(i) * (1 + m.Part(scale_part, i)) + m.Part(shift_part, i);
  };
  if (!s.ExplainsReference([&](int64_t i) { return modulate(i, shift, scale); })) return false;
  if (const auto fit = s.Test([&](int64_t i) { return modulate(i, scale, shift); })) {
    s.Add(
        "swapped_scale_shift", *fit,
        fmt::format("Scale and shift are swapped: the run has x · (1 + shift) + scale. Here the order is {}; "
                    "a block's modulation is [shift, scale, gate], {}'s is [scale, shift].",
                    shift < scale ? "[shift, scale]" : "[scale, shift]", s.family().head_norm));
    return true;
  }
  if (const auto fit = s.Test([&](int64_t i) { return m.X(i) * m.Part(scale, i) + m.Part(shift, i); })) {
    s.Add("missing_one_plus_scale", *fit, "The 1 of (1 + scale) is missing: the run has x · scale + shift.");
    return true;
  }
  if (const auto fit = s.Test([&](int64_t i) { return m.X(i) * (1 + m.Part(scale, i)); })) {
    s.Add("missing_shift", *fit, "The shift is missing: the run has x · (1 + scale).");
    return true;
  }
  if (other_shift < 0) return false;
  if (const auto fit = s.Test([&](int64_t i) { return modulate(i, other_shift, other_shift + 1); })) {
    s.Add(
        "wrong_modulation_half", *fit,
        "The other half of the modulation was used: its first three parts belong to the attention, the last "
        "three to the MLP.");
    return true;
  }
  for (int64_t pair = 0; pair < kModulationParts * kModulationParts; ++pair) {
    const auto fit =
        s.Test([&](int64_t i) { return modulate(i, pair / kModulationParts, pair % kModulationParts); });
    if (!fit) continue;
    s.Add(
        "wrong_modulation_parts", *fit,
        fmt::format("The shift was taken from part {} of the modulation and the scale from part {}; they are "
                    "parts {} and {} of [shift, scale, gate, shift, scale, gate].",
                    pair / kModulationParts, pair % kModulationParts, shift, scale));
    return true;
  }
  return false;
}

bool TestModulated(HintSearch& s, const BlockName& block) {
  for (const StreamNames& stream : s.family().streams) {
    for (const size_t half : {0, 1}) {
      if (!IsNamed(block.rest, stream.modulated[half])) continue;
      const auto m = ReadModulation(s, block.prefix + std::string(stream.norm[half]),
                                    block.prefix + std::string(stream.modulation), kModulationParts);
      const auto first = static_cast<int64_t>(3 * half);
      return m && TestModulation(s, *m, first, first + 1, 3 - first);
    }
  }
  return false;
}

bool TestHeadNorm(HintSearch& s) {
  const auto m = ReadModulation(s, s.name() + ".norm", s.name() + ".linear", 2);
  return m && TestModulation(s, *m, 1, 0, -1);
}

// The right gate, but through a function that other models have.
bool TestShapedGate(HintSearch& s, const GatedSum& sum, const GateOf& gate) {
  if (const auto fit = TestGate(s, sum, [&](int64_t i) { return std::tanh(gate(i)); })) {
    s.Add("gate_through_tanh", *fit, "The gate went through tanh; here it is used as it is.");
    return true;
  }
  if (const auto fit = TestGate(s, sum, [&](int64_t i) { return 1 + gate(i); })) {
    s.Add("one_plus_gate", *fit, "The gate is 1 + gate; the 1 belongs to the scale of the modulation only.");
    return true;
  }
  return false;
}

// The branch was added to what it read: the stream behind its norm.
bool TestNormedStream(HintSearch& s, const GatedSum& sum, const GateOf& gate, const std::string& norm) {
  const auto normed = s.OtherRef(norm, s.count());
  if (!normed) return false;
  const auto fit =
      s.Test([&](int64_t i) { return normed->values[static_cast<size_t>(i)] + gate(i) * sum.Branch(i); });
  if (!fit) return false;
  s.Add("residual_from_norm", *fit,
        fmt::format("The gated branch was added to {}; it belongs to the stream before that norm, {}.", norm,
                    sum.hidden_name));
  return true;
}

// Another part of the modulation, or one of the other stream's.
bool TestOtherGates(HintSearch& s, const GatedSum& sum, const BlockName& block, const StreamNames& own,
                    int64_t gate) {
  const int64_t dim = s.ref().shape.back();
  for (const StreamNames& stream : s.family().streams) {
    const std::string name = block.prefix + std::string(stream.modulation);
    const auto mod = s.OtherRef(name, kModulationParts * dim);
    for (int64_t part = 0; mod && part < kModulationParts; ++part) {
      if (part == gate && &stream == &own) continue;
      const auto fit =
          TestGate(s, sum, [&](int64_t i) { return mod->values[static_cast<size_t>(part * dim + i % dim)]; });
      if (!fit) continue;
      s.Add("wrong_gate", *fit,
            fmt::format(
                "The gate was taken from part {} of {}; it is part {} of {}: [shift, scale, gate, shift, "
                "scale, gate].",
                part, name, gate, block.prefix + std::string(own.modulation)));
      return true;
    }
  }
  return false;
}

bool TestResiduals(HintSearch& s, const BlockName& block) {
  for (const StreamNames& stream : s.family().streams) {
    const auto sum = ReadGatedSum(s, block, stream);
    if (!sum) continue;
    const int64_t dim = s.ref().shape.back();
    const auto mod = s.OtherRef(block.prefix + std::string(stream.modulation), kModulationParts * dim);
    if (!mod) return false;
    const auto part_of = [&](int64_t part) -> GateOf {
      return [&, part](int64_t i) { return mod->values[static_cast<size_t>(part * dim + i % dim)]; };
    };
    const int64_t gate = sum->half == 0 ? 2 : 5;
    if (!ExplainsReference(s, *sum, part_of(gate))) return false;
    if (TestPartsOfSum(s, *sum, part_of(gate))) return true;
    if (TestShapedGate(s, *sum, part_of(gate))) return true;
    if (TestNormedStream(s, *sum, part_of(gate), block.prefix + std::string(stream.norm[sum->half])))
      return true;
    return TestOtherGates(s, *sum, block, stream, gate);
  }
  return false;
}

double At(const HintTensor& t, int64_t i) { return t.values[static_cast<size_t>(i)]; }

// The prediction for the picture that is drawn, in the pass of a step. In one stream its rows are the last.
std::optional<HintTensor> ReadVelocity(const HintSearch& s, const std::string& pass) {
  auto velocity = s.context().ref(fmt::format("transformer/{}/{}", pass, s.family().velocity));
  if (!velocity || velocity->shape.empty() || velocity->shape.back() != s.ref().shape.back()) return {};
  const int64_t before = static_cast<int64_t>(velocity->values.size()) - s.count();
  if (before < 0 || (before > 0 && !s.family().one_stream)) return {};
  velocity->values.erase(velocity->values.begin(), velocity->values.begin() + before);
  return velocity;
}

// neg + scale · (pos − neg), with the scale that comes nearest to a tensor.
struct Guidance {
  HintTensor pos, neg;
  double scale = 0;

  Guidance(HintTensor pos_tensor, HintTensor neg_tensor, const HintTensor& like)
      : pos(std::move(pos_tensor)), neg(std::move(neg_tensor)) {
    double along = 0, square = 0;
    for (int64_t i = 0; i < static_cast<int64_t>(pos.values.size()); ++i) {
      along += (At(like, i) - At(neg, i)) * Direction(i);
      square += Direction(i) * Direction(i);
    }
    if (square > 0) scale = along / square;
  }
  double Direction(int64_t i) const { return At(pos, i) - At(neg, i); }
  double Combined(int64_t i) const { return At(neg, i) + scale * Direction(i); }
};

bool TestNotRescaled(HintSearch& s, const Guidance& guidance) {
  const auto fit = s.Test([&](int64_t i) { return guidance.Combined(i); }, {.fitted = 1});
  if (!fit) return false;
  s.Add(
      "guidance_not_rescaled", *fit,
      fmt::format("Guidance with the scale {:.4g}, but without bringing every token back to the norm of the "
                  "prompt's own prediction.",
                  guidance.scale));
  return true;
}

// The scale that the reference has: every token is a multiple of neg + scale · (pos − neg).
double ScaleOfRescaled(const HintSearch& s, const HintTensor& pos, const HintTensor& neg) {
  const int64_t width = s.ref().shape.back();
  std::vector<double> scales;
  for (int64_t token = 0; token < s.count() / width; ++token) {
    double nn = 0, nd = 0, dd = 0, rn = 0, rd = 0;
    for (int64_t i = token * width; i < (token + 1) * width; ++i) {
      const double n = At(neg, i), d = At(pos, i) - n, r = s.RefAt(i);
      nn += n * n, nd += n * d, dd += d * d, rn += r * n, rd += r * d;
    }
    const double of_neg = rn * dd - rd * nd, of_direction = rd * nn - rn * nd;
    if (of_neg != 0) scales.push_back(of_direction / of_neg);
  }
  if (scales.empty()) return 0;
  const auto middle = scales.begin() + static_cast<int64_t>(scales.size() / 2);
  std::nth_element(scales.begin(), middle, scales.end());
  return *middle;
}

// neg + scale · (pos − neg) brought back to the norms of `like`, over groups of `width` elements.
class RescaledGuidance {
 public:
  RescaledGuidance(const HintTensor& pos, const HintTensor& neg, double scale, const HintTensor& like,
                   int64_t width)
      : pos_(&pos), neg_(&neg), scale_(scale), width_(width) {
    const auto count = static_cast<int64_t>(pos.values.size());
    std::vector<double> want(static_cast<size_t>(count / width)), have = want;
    for (int64_t i = 0; i < count; ++i) {
      want[static_cast<size_t>(i / width)] += At(like, i) * At(like, i);
      have[static_cast<size_t>(i / width)] += Plain(i) * Plain(i);
    }
    for (size_t g = 0; g < want.size(); ++g)
      factors_.push_back(have[g] > 0 ? std::sqrt(want[g] / have[g]) : 0);
  }
  double operator()(int64_t i) const { return Plain(i) * factors_[static_cast<size_t>(i / width_)]; }

 private:
  double Plain(int64_t i) const { return At(*neg_, i) + scale_ * (At(*pos_, i) - At(*neg_, i)); }

  const HintTensor *pos_, *neg_;
  double scale_;
  int64_t width_;
  std::vector<double> factors_;
};

// Guidance with its rescaling, but other terms.
bool TestOtherGuidance(HintSearch& s, const HintTensor& pos, const HintTensor& neg) {
  const int64_t width = s.ref().shape.back();
  const double scale = ScaleOfRescaled(s, pos, neg);
  if (!s.ExplainsReference(RescaledGuidance(pos, neg, scale, pos, width))) return false;
  if (const auto fit = s.Test(RescaledGuidance(pos, neg, scale, pos, s.count()))) {
    s.Add("guidance_rescaled_as_whole", *fit,
          "The norm was taken over all tokens at once; every token is brought back to its own.");
    return true;
  }
  if (const auto fit = s.Test(RescaledGuidance(pos, neg, scale + 1, pos, width))) {
    s.Add(
        "guidance_from_prompt", *fit,
        "Guidance starts from the prompt's prediction, pos + scale · (pos − neg); it is neg + scale · (pos − "
        "neg).");
    return true;
  }
  for (const HintTensor* like : {&pos, &neg}) {
    const auto fit = s.Test(RescaledGuidance(neg, pos, scale, *like, width));
    if (!fit) continue;
    s.Add("swapped_prompts", *fit, "The prompt and the negative prompt changed places in the guidance.");
    return true;
  }
  return false;
}

// `guidance`: as the reference has it.
bool TestRescaled(HintSearch& s, const Guidance& guidance) {
  if (!s.ExplainsReference([&](int64_t i) { return guidance.Combined(i); })) return false;
  const int64_t width = s.ref().shape.back();
  std::vector<double> pos_square(static_cast<size_t>(s.count() / width)), square = pos_square;
  for (int64_t i = 0; i < s.count(); ++i) {
    pos_square[static_cast<size_t>(i / width)] += At(guidance.pos, i) * At(guidance.pos, i);
    square[static_cast<size_t>(i / width)] += guidance.Combined(i) * guidance.Combined(i);
  }
  const auto rescaled = [&](int64_t i) {
    const auto token = static_cast<size_t>(i / width);
    return square[token] > 0 ? guidance.Combined(i) * std::sqrt(pos_square[token] / square[token]) : 0;
  };
  const auto fit = s.Test(rescaled);
  if (!fit) return false;
  s.Add("guidance_rescaled", *fit,
        "Every token was brought back to the norm of the prompt's own prediction, as older models do; this "
        "model's guidance is plain: neg + scale · (pos − neg).");
  return true;
}

// Some families then scale every token back to the norm of pos.
bool TestGuidance(HintSearch& s, int64_t step) {
  auto pos = ReadVelocity(s, fmt::format("step{:03}", step)),
       neg = ReadVelocity(s, fmt::format("step{:03}.neg", step));
  if (!pos || !neg) return false;
  if (const auto fit = s.Test([&](int64_t i) { return At(*pos, i); })) {
    s.Add("missing_guidance", *fit, "Guidance is missing: this is the prediction for the prompt alone.");
    return true;
  }
  if (s.family().rescales_guidance) {
    if (TestOtherGuidance(s, *pos, *neg)) return true;
    return TestNotRescaled(s, Guidance(std::move(*pos), std::move(*neg), s.run()));
  }
  return TestRescaled(s, Guidance(std::move(*pos), std::move(*neg), s.ref()));
}

// The step is latents + dt · velocity. The run may have subtracted instead.
bool TestEulerStep(HintSearch& s) {
  std::optional<int64_t> step = record::NumberAfter(s.name(), "packed_latents_step");
  if (s.name() == "final_latents_packed") {
    for (const std::string& name : s.context().names) {
      if (const auto number = record::NumberAfter(name, "packed_latents_step"))
        step = std::max(step.value_or(0), *number + 1);
    }
  }
  if (!step || *step == 0) return false;
  const auto before = s.OtherRef(fmt::format("packed_latents_step{}", *step - 1), s.count());
  if (!before) return false;
  const auto x = [&](int64_t i) { return static_cast<double>(before->values[static_cast<size_t>(i)]); };
  if (const auto fit = s.Test([&](int64_t i) { return 2 * x(i) - s.RefAt(i); })) {
    s.Add("wrong_step_sign", *fit,
          "The step went the other way: latents − dt · velocity. sigma falls, so sigma_next − sigma is "
          "negative.");
    return true;
  }
  if (const auto fit = s.Test(x)) {
    s.Add("latents_not_updated", *fit, "The latents are still those before the step.");
    return true;
  }
  double along = 0, square = 0;
  for (int64_t i = 0; i < s.count(); ++i) {
    const double move = s.RefAt(i) - x(i);
    along += (s.RunAt(i) - x(i)) * move;
    square += move * move;
  }
  if (!(square > 0)) return false;
  const double length = along / square;
  if (const auto fit =
          s.Test([&](int64_t i) { return x(i) + length * (s.RefAt(i) - x(i)); }, {.fitted = 1})) {
    s.Add("wrong_step_length", *fit,
          fmt::format(
              "The step has the right direction, but {:.4g} times its length. Look at the sigmas, their "
              "shift, and which two of them the step uses.",
              length));
    return true;
  }
  return false;
}

}  // namespace

void TestModelHints(HintSearch& s) {
  if (!s.same_shape() || s.ref().shape.empty()) return;
  const bool one_stream = s.family().one_stream.has_value();
  const auto block = ParseBlockName(s.family(), s.name());
  if (block && block->list == s.family().denoiser_blocks) {
    const bool found =
        one_stream ? TestOneStreamHints(s, *block) : TestModulated(s, *block) || TestResiduals(s, *block);
    found || TestRopeHints(s, *block) || TestAttentionHints(s, *block);
    return;
  }
  if (!block && ModuleOf(s.name()) == s.family().head_norm && s.name().find('/') != std::string::npos) {
    one_stream ? TestOneStreamHeadNorm(s) : TestHeadNorm(s);
  } else if (const auto step = record::NumberAfter(s.name(), "noise_pred_step")) {
    TestGuidance(s, *step);
  } else {
    TestScheduleHints(s) || TestPictureHints(s) || TestConditioningHints(s) || TestEulerStep(s);
  }
}

}  // namespace qwen_image::hints
