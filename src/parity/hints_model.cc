// Hypotheses about a diffusion transformer's operations: the operation is computed once more from the
// reference's inputs, the wrong way. First the right way must give the reference's tensor; else the inputs
// are not those of this operation, and nothing is said. RoPE and attention: hints_attention.cc.
#include <fmt/format.h>

#include <algorithm>

#include "parity/hint_search.h"
#include "parity/level.h"

namespace qwen_image {
namespace {

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
  return false;
}

bool TestModulated(HintSearch& s, const BlockName& block) {
  for (const StreamNames& stream : s.family().streams) {
    for (const size_t half : {0, 1}) {
      if (!IsNamed(block.rest, stream.modulated[half])) continue;
      const auto m = ReadModulation(s, block.prefix + std::string(stream.norm[half]),
                                    block.prefix + std::string(stream.modulation), 6);
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

// hidden + gate · branch
bool TestGatedResidual(HintSearch& s, const std::string& hidden_name, const std::string& branch_name,
                       const std::string& mod_name, int64_t gate) {
  const auto m = ReadModulation(s, branch_name, mod_name, 6);
  const auto hidden = s.OtherRef(hidden_name, s.count());
  if (!m || !hidden) return false;
  const auto x = [&](int64_t i) { return static_cast<double>(hidden->values[static_cast<size_t>(i)]); };
  const auto update = [&](int64_t i) { return m->Part(gate, i) * m->X(i); };
  if (!s.ExplainsReference([&](int64_t i) { return x(i) + update(i); })) return false;
  if (const auto fit = s.Test(x)) {
    s.Add("residual_not_updated", *fit,
          fmt::format("The stream is still the one before this branch ({}): the gated result was not added.",
                      hidden_name));
    return true;
  }
  if (const auto fit = s.Test([&](int64_t i) { return x(i) + m->X(i); })) {
    s.Add("missing_gate", *fit, "The gate is missing: the branch was added to the stream as it is.");
    return true;
  }
  if (const auto fit = s.Test(update)) {
    s.Add("missing_residual", *fit,
          fmt::format("The residual is missing: the gated branch replaces the stream ({}) instead of being "
                      "added to it.",
                      hidden_name));
    return true;
  }
  if (const auto fit = s.Test([&](int64_t i) { return x(i) - update(i); })) {
    s.Add("sign", *fit, "The gated branch was subtracted from the stream instead of added.");
    return true;
  }
  for (int64_t part = 0; part < 6; ++part) {
    if (part == gate) continue;
    const auto fit = s.Test([&](int64_t i) { return x(i) + m->Part(part, i) * m->X(i); });
    if (!fit) continue;
    s.Add("wrong_gate", *fit,
          fmt::format(
              "The gate was taken from part {} of the modulation; it is part {} of [shift, scale, gate, "
              "shift, scale, gate].",
              part, gate));
    return true;
  }
  return false;
}

bool TestResiduals(HintSearch& s, const BlockName& block) {
  for (const StreamNames& stream : s.family().streams) {
    const std::string mod = block.prefix + std::string(stream.modulation);
    if (IsNamed(block.rest, stream.attention_residual)) {
      const std::string hidden =
          block.index == 0 ? fmt::format("{}{}", block.pass, stream.input)
                           : fmt::format("{}{}.{}{}", block.pass, block.list, block.index - 1, stream.output);
      return TestGatedResidual(s, hidden, block.prefix + std::string(stream.attention_out), mod, 2);
    }
    if (IsNamed(block.rest, stream.output)) {
      return TestGatedResidual(s, block.prefix + std::string(stream.attention_residual),
                               block.prefix + std::string(stream.mlp), mod, 5);
    }
  }
  return false;
}

// neg + scale · (pos − neg), then every token is brought back to the norm of pos.
bool TestGuidance(HintSearch& s, int64_t step) {
  const auto pos = s.OtherRef(fmt::format("transformer/step{:03}/{}", step, s.family().velocity), s.count());
  const auto neg =
      s.OtherRef(fmt::format("transformer/step{:03}.neg/{}", step, s.family().velocity), s.count());
  if (!pos || !neg) return false;
  const auto at = [](const HintTensor& t, int64_t i) {
    return static_cast<double>(t.values[static_cast<size_t>(i)]);
  };
  if (const auto fit = s.Test([&](int64_t i) { return at(*pos, i); })) {
    s.Add("missing_guidance", *fit, "Guidance is missing: this is the prediction for the prompt alone.");
    return true;
  }
  double along = 0, square = 0;
  for (int64_t i = 0; i < s.count(); ++i) {
    const double direction = at(*pos, i) - at(*neg, i);
    along += (s.RunAt(i) - at(*neg, i)) * direction;
    square += direction * direction;
  }
  if (!(square > 0) || !s.family().rescales_guidance) return false;
  const double scale = along / square;
  const auto combined = [&](int64_t i) { return at(*neg, i) + scale * (at(*pos, i) - at(*neg, i)); };
  if (const auto fit = s.Test(combined, {.fitted = 1})) {
    s.Add("guidance_not_rescaled", *fit,
          fmt::format(
              "Guidance with the scale {:.4g}, but without bringing every token back to the norm of the "
              "prompt's own prediction.",
              scale));
    return true;
  }
  return false;
}

// latents + dt · velocity: the run may have gone the other way.
bool TestEulerStep(HintSearch& s) {
  std::optional<int64_t> step = NumberAfter(s.name(), "packed_latents_step");
  if (s.name() == "final_latents_packed") {
    for (const std::string& name : s.context().names) {
      if (const auto number = NumberAfter(name, "packed_latents_step"))
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
  const auto block = ParseBlockName(s.family(), s.name());
  if (block && block->list == s.family().denoiser_blocks) {
    TestModulated(s, *block) || TestResiduals(s, *block) || TestAttentionHints(s, *block);
    return;
  }
  if (!block && ModuleOf(s.name()) == s.family().head_norm && s.name().find('/') != std::string::npos) {
    TestHeadNorm(s);
  } else if (const auto step = NumberAfter(s.name(), "noise_pred_step")) {
    TestGuidance(s, *step);
  } else {
    TestEulerStep(s);
  }
}

}  // namespace qwen_image
