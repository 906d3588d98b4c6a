// The model's own operations, done wrong on synthetic inputs: RoPE, attention, modulation, residuals,
// guidance, Euler steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "parity/hints/testing.h"

namespace qwen_image::hints {
namespace {

constexpr int64_t kText = 7, kImage = 12, kHeads = 2, kHeadDim = 16, kDim = kHeads * kHeadDim;
const std::string kPass = "transformer/step000/", kBlock = kPass + "transformer_blocks.0";

double At(const HintTensor& t, int64_t i) { return t.values[static_cast<size_t>(i)]; }

// ── RoPE ──

struct RopeVariant {
  bool halves = false;            // pairs (j, j + dim/2) instead of (2j, 2j + 1)
  bool angles_of_halves = false;  // element e has the angle e mod dim/2 instead of e / 2
  double direction = 1;
  double first_position = -3;
  double theta = 100;
};

HintTensor Rope(const HintTensor& x, const RopeVariant& v) {
  const int64_t half = kHeadDim / 2;
  return Changed(x, [&](int64_t i) {
    const int64_t e = i % kHeadDim, token = i / kDim;
    const int64_t number = v.angles_of_halves ? e % half : e / 2;
    const double angle = (v.first_position + static_cast<double>(token)) *
                         std::pow(v.theta, -static_cast<double>(number) / static_cast<double>(half));
    const bool second = v.halves ? e >= half : e % 2 == 1;
    const int64_t distance = v.halves ? half : 1;
    return At(x, i) * std::cos(angle) +
           v.direction * (second ? At(x, i - distance) : -At(x, i + distance)) * std::sin(angle);
  });
}

TEST(ModelHints, TellRopeVariantsApart) {
  const HintTensor before = RandomTensor({1, kImage, kHeads, kHeadDim}, 1);
  const NamedTensors reference = {{kBlock + ".attn.norm_k", before},
                                  {kBlock + ":img_key_rope", Rope(before, {})}};
  const auto kind_of = [&](const RopeVariant& v) {
    return FirstKind(HintsFor(kBlock + ":img_key_rope", reference, Rope(before, v)));
  };
  EXPECT_EQ(kind_of({.halves = true, .angles_of_halves = true}), "rope_pairing");
  EXPECT_EQ(kind_of({.halves = true}), "rope_pairing");
  EXPECT_EQ(kind_of({.angles_of_halves = true}), "rope_pairing");
  EXPECT_EQ(kind_of({.direction = -1}), "rope_direction");
  EXPECT_EQ(kind_of({.first_position = 0}), "rope_positions");
  EXPECT_EQ(kind_of({.theta = 1000}), "rope_angles");
  EXPECT_EQ(FirstKind(HintsFor(kBlock + ":img_key_rope", reference, before)), "rope_not_applied");
  EXPECT_EQ(FirstKind(HintsFor(kBlock + ":img_key_rope", reference,
                               WithBf16Noise(Rope(before, {.halves = true, .angles_of_halves = true})))),
            "rope_pairing");
}

TEST(ModelHints, KnowAReferenceWithHalves) {
  const HintTensor before = RandomTensor({1, kText, kHeads, kHeadDim}, 1);
  const NamedTensors reference = {
      {kBlock + ".attn.norm_added_q", before},
      {kBlock + ":txt_query_rope", Rope(before, {.halves = true, .angles_of_halves = true})}};
  EXPECT_EQ(FirstKind(HintsFor(kBlock + ":txt_query_rope", reference, Rope(before, {}))), "rope_pairing");
}

// ── Attention ──

struct AttentionVariant {
  double scale = 1 / std::sqrt(static_cast<double>(kHeadDim));
  bool causal = false, own_stream_only = false;
};

// [tokens, heads, keys]
HintTensor Weights(const HintTensor& q, const HintTensor& k, const AttentionVariant& v) {
  const int64_t tokens = kText + kImage;
  HintTensor weights{{1, tokens, kHeads, tokens},
                     std::vector<float>(static_cast<size_t>(tokens * kHeads * tokens))};
  for (int64_t row = 0; row < tokens * kHeads; ++row) {
    const int64_t token = row / kHeads, head = row % kHeads;
    float* w = weights.values.data() + row * tokens;
    double sum = 0;
    for (int64_t key = 0; key < tokens; ++key) {
      double dot = 0;
      for (int64_t d = 0; d < kHeadDim; ++d)
        dot += At(q, row * kHeadDim + d) * At(k, (key * kHeads + head) * kHeadDim + d);
      const bool hidden =
          (v.causal && key > token) || (v.own_stream_only && (key < kText) != (token < kText));
      sum += w[key] = hidden ? 0 : static_cast<float>(std::exp(v.scale * dot));
    }
    for (int64_t key = 0; key < tokens; ++key) w[key] /= static_cast<float>(sum);
  }
  return weights;
}

HintTensor AttentionOutput(const HintTensor& weights, const HintTensor& value) {
  const int64_t tokens = kText + kImage;
  HintTensor out{{1, tokens, kDim}, std::vector<float>(static_cast<size_t>(tokens * kDim))};
  return Changed(out, [&](int64_t i) {
    const int64_t row = i / kHeadDim;  // token and head
    double sum = 0;
    for (int64_t key = 0; key < tokens; ++key)
      sum += At(weights, row * tokens + key) * At(value, key * kDim + i % kDim);
    return sum;
  });
}

// The part of a joint tensor that belongs to one stream.
HintTensor Rows(const HintTensor& joint, int64_t begin, int64_t count, Shape shape) {
  return {std::move(shape),
          {joint.values.begin() + begin * kDim, joint.values.begin() + (begin + count) * kDim}};
}

class AttentionHints : public testing::Test {
 protected:
  AttentionHints() {
    reference_[kBlock + ":txt_query_rope"] = Rows(q_, 0, kText, {1, kText, kHeads, kHeadDim});
    reference_[kBlock + ":img_query_rope"] = Rows(q_, kText, kImage, {1, kImage, kHeads, kHeadDim});
    reference_[kBlock + ":txt_key_rope"] = Rows(k_, 0, kText, {1, kText, kHeads, kHeadDim});
    reference_[kBlock + ":img_key_rope"] = Rows(k_, kText, kImage, {1, kImage, kHeads, kHeadDim});
    reference_[kBlock + ".attn.add_v_proj"] = Rows(v_, 0, kText, {1, kText, kDim});
    reference_[kBlock + ".attn.to_v"] = Rows(v_, kText, kImage, {1, kImage, kDim});
    reference_[kBlock + ":attn_weights"] = Weights(q_, k_, {});
    reference_[kBlock + ":attn_output"] = AttentionOutput(Weights(q_, k_, {}), v_);
  }
  std::string KindOf(const AttentionVariant& v) const {
    return FirstKind(HintsFor(kBlock + ":attn_output", reference_, AttentionOutput(Weights(q_, k_, v), v_)));
  }

  const Shape heads_ = {1, kText + kImage, kHeads, kHeadDim};
  const HintTensor q_ = RandomTensor(heads_, 1), k_ = RandomTensor(heads_, 2), v_ = RandomTensor(heads_, 3);
  NamedTensors reference_;
};

TEST_F(AttentionHints, TellVariantsApart) {
  EXPECT_EQ(KindOf({.scale = 1}), "missing_attention_scale");
  EXPECT_EQ(KindOf({.scale = 1.0 / kHeadDim}), "wrong_attention_scale");
  EXPECT_EQ(KindOf({.scale = 1 / std::sqrt(static_cast<double>(kDim))}), "wrong_attention_scale");
  EXPECT_EQ(KindOf({.own_stream_only = true}), "attention_not_joint");
  EXPECT_EQ(KindOf({.causal = true}), "causal_attention");
}

TEST_F(AttentionHints, KnowValuesInAnotherOrder) {
  HintTensor rotated = v_;
  std::rotate(rotated.values.begin(), rotated.values.begin() + kText * kDim, rotated.values.end());
  const HintTensor wrong = AttentionOutput(Weights(q_, k_, {}), rotated);
  EXPECT_EQ(FirstKind(HintsFor(kBlock + ":attn_output", reference_, wrong)), "swapped_values");
}

TEST_F(AttentionHints, KnowTheWeightsToo) {
  EXPECT_EQ(FirstKind(HintsFor(kBlock + ":attn_weights", reference_, Weights(q_, k_, {.scale = 1}))),
            "missing_attention_scale");
}

// Inputs that do not give the reference's own output say nothing about the run's.
TEST_F(AttentionHints, AreSilentIfTheInputsAreOthers) {
  const HintTensor unscaled = AttentionOutput(Weights(q_, k_, {.scale = 1}), v_);
  reference_[kBlock + ".attn.to_v"] = RandomTensor({1, kImage, kDim}, 9);
  EXPECT_EQ(FirstKind(HintsFor(kBlock + ":attn_output", reference_, unscaled)), "");
}

// ── Modulation and residuals ──

HintTensor Combine(const HintTensor& like, const std::function<double(int64_t)>& value) {
  return Changed(like, value);
}

TEST(ModelHints, TellModulationsApart) {
  const HintTensor x = RandomTensor({1, kImage, kDim}, 1), mod = RandomTensor({1, 6 * kDim}, 2);
  const auto part = [&](int64_t p, int64_t i) { return At(mod, p * kDim + i % kDim); };
  const auto modulated = [&](int64_t shift, int64_t scale, double one) {
    return Combine(x, [&](int64_t i) { return At(x, i) * (one + part(scale, i)) + part(shift, i); });
  };
  for (const int64_t half : {0, 1}) {
    const int64_t shift = 3 * half, scale = shift + 1;
    const std::string name = kBlock + ":txt_modulated" + std::to_string(half + 1);
    const NamedTensors reference = {{kBlock + ".txt_norm" + std::to_string(half + 1), x},
                                    {kBlock + ".txt_mod.1", mod},
                                    {name, modulated(shift, scale, 1)}};
    EXPECT_EQ(FirstKind(HintsFor(name, reference, modulated(scale, shift, 1))), "swapped_scale_shift");
    EXPECT_EQ(FirstKind(HintsFor(name, reference, modulated(shift, scale, 0))), "missing_one_plus_scale");
    EXPECT_EQ(FirstKind(HintsFor(name, reference, modulated(3 - shift, 4 - shift, 1))),
              "wrong_modulation_half");
    EXPECT_EQ(FirstKind(HintsFor(name, reference, modulated(scale, scale + 1, 1))), "wrong_modulation_parts");
    EXPECT_EQ(FirstKind(HintsFor(name, reference,
                                 Combine(x, [&](int64_t i) { return At(x, i) * (1 + part(scale, i)); }))),
              "missing_shift");
  }
}

TEST(ModelHints, KnowNormOutsOrder) {
  const HintTensor x = RandomTensor({1, kImage, kDim}, 1), mod = RandomTensor({1, 2 * kDim}, 2);
  const auto modulated = [&](int64_t scale, int64_t shift) {
    return Combine(x, [&](int64_t i) {
      return At(x, i) * (1 + At(mod, scale * kDim + i % kDim)) + At(mod, shift * kDim + i % kDim);
    });
  };
  const NamedTensors reference = {
      {kPass + "norm_out.norm", x}, {kPass + "norm_out.linear", mod}, {kPass + "norm_out", modulated(0, 1)}};
  EXPECT_EQ(FirstKind(HintsFor(kPass + "norm_out", reference, modulated(1, 0))), "swapped_scale_shift");
}

TEST(ModelHints, TellResidualsApart) {
  const Shape shape = {1, kImage, kDim};
  const HintTensor x = RandomTensor(shape, 1), branch = RandomTensor(shape, 2),
                   mod = RandomTensor({1, 6 * kDim}, 3);
  struct Place {
    std::string name, hidden, branch;
    int64_t gate;
  };
  const std::string next = kPass + "transformer_blocks.1";
  for (const Place& p : {Place{kBlock + ":img_attn_residual", kPass + "img_in", kBlock + ".attn.to_out.0", 2},
                         Place{next + ":img_attn_residual", kBlock + ":img", next + ".attn.to_out.0", 2},
                         Place{next + ":img", next + ":img_attn_residual", next + ".img_mlp", 5}}) {
    const auto sum = [&](double keep, int64_t gate_part, double direction) {
      return Combine(x, [&](int64_t i) {
        const double gate = gate_part < 0 ? 1 : At(mod, gate_part * kDim + i % kDim);
        return keep * At(x, i) + direction * gate * At(branch, i);
      });
    };
    const std::string block = p.name.substr(0, p.name.find(':'));
    const HintTensor normed = RandomTensor(shape, 4);
    const NamedTensors reference = {{p.hidden, x},
                                    {p.branch, branch},
                                    {block + (p.gate == 2 ? ".img_norm1" : ".img_norm2"), normed},
                                    {block + ".img_mod.1", mod},
                                    {block + ".txt_mod.1", RandomTensor({1, 6 * kDim}, 5)},
                                    {p.name, sum(1, p.gate, 1)}};
    EXPECT_EQ(FirstKind(HintsFor(p.name, reference, x)), "residual_not_updated");
    EXPECT_EQ(FirstKind(HintsFor(p.name, reference, sum(1, -1, 1))), "missing_gate");
    EXPECT_EQ(FirstKind(HintsFor(p.name, reference, sum(0, p.gate, 1))), "missing_residual");
    EXPECT_EQ(FirstKind(HintsFor(p.name, reference, sum(1, p.gate, -1))), "sign");
    EXPECT_EQ(FirstKind(HintsFor(p.name, reference, sum(1, 7 - p.gate, 1))), "wrong_gate");
    const auto shaped = [&](const std::function<double(double)>& shape_of) {
      return Combine(x, [&](int64_t i) {
        return At(x, i) + shape_of(At(mod, p.gate * kDim + i % kDim)) * At(branch, i);
      });
    };
    const HintTensor of_text = Combine(x, [&](int64_t i) {
      const HintTensor& txt_mod = reference.at(block + ".txt_mod.1");
      return At(x, i) + At(txt_mod, p.gate * kDim + i % kDim) * At(branch, i);
    });
    EXPECT_EQ(FirstKind(HintsFor(p.name, reference, of_text)), "wrong_gate");
    const HintTensor to_the_norm = Combine(
        x, [&](int64_t i) { return At(normed, i) + At(mod, p.gate * kDim + i % kDim) * At(branch, i); });
    EXPECT_EQ(FirstKind(HintsFor(p.name, reference, to_the_norm)), "residual_from_norm");
    const auto tanh = [](double gate) { return std::tanh(gate); };
    const auto one_plus = [](double gate) { return 1 + gate; };
    EXPECT_EQ(FirstKind(HintsFor(p.name, reference, shaped(tanh))), "gate_through_tanh");
    EXPECT_EQ(FirstKind(HintsFor(p.name, reference, shaped(one_plus))), "one_plus_gate");
  }
}

// ── Guidance and steps ──

TEST(ModelHints, KnowGuidanceWithoutItsRescale) {
  const Shape shape = {1, kImage, 64};
  const HintTensor pos = RandomTensor(shape, 1), neg = RandomTensor(shape, 2);
  const HintTensor plain =
      Combine(pos, [&](int64_t i) { return At(neg, i) + 4 * (At(pos, i) - At(neg, i)); });
  const HintTensor rescaled = Combine(plain, [&](int64_t i) {
    double pos_square = 0, plain_square = 0;
    for (int64_t c = i / 64 * 64; c < i / 64 * 64 + 64; ++c) {
      pos_square += At(pos, c) * At(pos, c);
      plain_square += At(plain, c) * At(plain, c);
    }
    return At(plain, i) * std::sqrt(pos_square / plain_square);
  });
  const NamedTensors reference = {{"transformer/step000/proj_out", pos},
                                  {"transformer/step000.neg/proj_out", neg},
                                  {"noise_pred_step0", rescaled}};
  EXPECT_EQ(FirstKind(HintsFor("noise_pred_step0", reference, plain)), "guidance_not_rescaled");
  EXPECT_EQ(FirstKind(HintsFor("noise_pred_step0", reference, pos)), "missing_guidance");
}

TEST(ModelHints, TellRescaledGuidanceApart) {
  const Shape shape = {1, kImage, 64};
  const HintTensor pos = RandomTensor(shape, 1), neg = RandomTensor(shape, 2);
  const auto guided = [&](const HintTensor& from, const HintTensor& to, double scale, int64_t width) {
    const HintTensor plain =
        Combine(from, [&](int64_t i) { return At(from, i) + scale * (At(to, i) - At(from, i)); });
    return Combine(plain, [&](int64_t i) {
      double want = 0, have = 0;
      for (int64_t c = i / width * width; c < (i / width + 1) * width; ++c) {
        want += At(to, c) * At(to, c);
        have += At(plain, c) * At(plain, c);
      }
      return At(plain, i) * std::sqrt(want / have);
    });
  };
  const NamedTensors reference = {{"transformer/step000/proj_out", pos},
                                  {"transformer/step000.neg/proj_out", neg},
                                  {"noise_pred_step0", guided(neg, pos, 4, 64)}};
  const auto kind_of = [&](const HintTensor& run) {
    return FirstKind(HintsFor("noise_pred_step0", reference, run));
  };
  EXPECT_EQ(kind_of(guided(neg, pos, 5, 64)), "guidance_from_prompt");
  EXPECT_EQ(kind_of(guided(pos, neg, 4, 64)), "swapped_prompts");
  EXPECT_EQ(kind_of(guided(neg, pos, 4, 64 * kImage)), "guidance_rescaled_as_whole");
}

TEST(ModelHints, KnowWrongSteps) {
  const HintTensor first = RandomTensor({1, kImage, 64}, 1), velocity = RandomTensor({1, kImage, 64}, 2);
  const auto step = [&](double dt) {
    return Combine(first, [&](int64_t i) { return At(first, i) + dt * At(velocity, i); });
  };
  for (const std::string name : {"packed_latents_step1", "final_latents_packed"}) {
    const NamedTensors reference = {{"packed_latents_step0", first}, {name, step(-0.25)}};
    EXPECT_EQ(FirstKind(HintsFor(name, reference, step(0.25))), "wrong_step_sign");
    EXPECT_EQ(FirstKind(HintsFor(name, reference, step(-0.4))), "wrong_step_length");
    EXPECT_EQ(FirstKind(HintsFor(name, reference, first)), "latents_not_updated");
  }
}

}  // namespace
}  // namespace qwen_image::hints
