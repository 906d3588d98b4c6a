// Planted errors on synthetic tensors. Each must be named, alone and under the noise of bf16. Errors without
// a cause must not be named.
#include "parity/hints/causes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "files/npy.h"
#include "files/testing.h"
#include "parity/compare/runs.h"
#include "parity/hints/testing.h"

namespace qwen_image::hints {
namespace {

struct Planted {
  std::string kind;  // what the first hint must say
  std::string name;
  Shape shape;
  std::function<HintTensor(const HintTensor& ref)> plant;
  std::string label = {};  // to tell cases of one kind apart
};

void PrintTo(const Planted& p, std::ostream* out) { *out << p.kind; }

// run[i] = value(ref, i)
Planted PlantValue(std::string kind, std::string name, Shape shape,
                   std::function<double(const HintTensor&, int64_t)> value, std::string label = {}) {
  return {std::move(kind), std::move(name), std::move(shape),
          [value](const HintTensor& ref) { return Changed(ref, [&](int64_t i) { return value(ref, i); }); },
          std::move(label)};
}

double At(const HintTensor& t, int64_t i) { return t.values[static_cast<size_t>(i)]; }

// The memory of `ref` with its axes in another order.
HintTensor Transposed(const HintTensor& ref, const std::vector<size_t>& axes) {
  const size_t rank = ref.shape.size();
  std::vector<int64_t> strides(rank, 1);
  for (size_t a = rank - 1; a-- > 0;) strides[a] = strides[a + 1] * ref.shape[a + 1];
  HintTensor out{{}, ref.values};
  for (const size_t a : axes) out.shape.push_back(ref.shape[a]);
  std::vector<int64_t> at(rank);
  for (float& v : out.values) {
    int64_t from = 0;
    for (size_t k = 0; k < rank; ++k) from += at[k] * strides[axes[k]];
    v = ref.values[static_cast<size_t>(from)];
    for (size_t k = rank; k-- > 0;) {
      if (++at[k] < out.shape[k]) break;
      at[k] = 0;
    }
  }
  return out;
}

Planted PlantTranspose(std::string kind, std::string name, Shape shape, std::vector<size_t> axes,
                       bool keep_shape, std::string label = {}) {
  return {std::move(kind), std::move(name), std::move(shape),
          [axes = std::move(axes), keep_shape](const HintTensor& ref) {
            HintTensor run = Transposed(ref, axes);
            if (keep_shape) run.shape = ref.shape;
            return run;
          },
          std::move(label)};
}

HintTensor WithShape(HintTensor tensor, Shape shape) {
  tensor.shape = std::move(shape);
  return tensor;
}

const std::string kBlock = "transformer/step001/transformer_blocks.2";
const Shape kHidden = {1, 24, 64};

std::vector<Planted> AllPlanted() {
  const std::string hidden = kBlock + ".attn.to_q", vae = "vae/decoder.up_blocks.1";
  const Shape picture = {1, 16, 1, 6, 10};
  std::vector<Planted> all = {
      PlantValue("all_zero", hidden, kHidden, [](const HintTensor&, int64_t) { return 0.0; }),
      PlantValue("sign", hidden, kHidden, [](const HintTensor& r, int64_t i) { return -At(r, i); }),
      PlantValue("sign_of_half", hidden, kHidden,
                 [](const HintTensor& r, int64_t i) { return i % 64 < 32 ? At(r, i) : -At(r, i); }),
      PlantValue("constant_factor", hidden, kHidden,
                 [](const HintTensor& r, int64_t i) { return At(r, i) * std::sqrt(128.0); }),
      PlantValue("constant_offset", hidden, kHidden,
                 [](const HintTensor& r, int64_t i) { return At(r, i) + 1; }),
      PlantValue("factor_and_offset", "image", {1, 3, 8, 12},
                 [](const HintTensor& r, int64_t i) { return At(r, i) * 0.5 + 0.5; }),
      PlantValue("missing_bias", hidden, kHidden,
                 [](const HintTensor& r, int64_t i) { return At(r, i) - std::sin(3.0 * (i % 64)); }),
      PlantValue(
          "missing_bias", vae, picture,
          [](const HintTensor& r, int64_t i) { return At(r, i) - std::sin(3.0 * (i / 60)); }, "conv"),
      PlantValue("channel_factor", hidden, kHidden,
                 [](const HintTensor& r, int64_t i) { return At(r, i) * (1.5 + std::sin(3.0 * (i % 64))); }),
      PlantValue("channel_factor_and_offset", "vae/pre_decode_latents", picture,
                 [](const HintTensor& r, int64_t i) {
                   return (At(r, i) - std::cos(2.0 * (i / 60))) / (2 + std::sin(1.0 * (i / 60)));
                 }),
      PlantValue("clamped", hidden, kHidden,
                 [](const HintTensor& r, int64_t i) { return std::clamp(At(r, i), -1.5, 1.5); }),
      PlantTranspose("transposed_axes", hidden, kHidden, {0, 2, 1}, false),
      PlantTranspose("transposed_axes", hidden, {1, 32, 32}, {0, 2, 1}, false, "square"),
      PlantTranspose("transposed_axes", kBlock + ".attn.norm_q", {1, 24, 4, 16}, {0, 2, 1, 3}, false,
                     "heads"),
      PlantTranspose("nchw_nhwc", vae, picture, {0, 2, 3, 4, 1}, false),
      PlantTranspose("nchw_nhwc", "image", {2, 3, 8, 12}, {0, 2, 3, 1}, false, "batch"),
      PlantTranspose("strided_view", vae, picture, {0, 2, 3, 4, 1}, true),
      PlantTranspose("strided_view", kBlock + ".attn.norm_q", {1, 24, 4, 16}, {0, 2, 1, 3}, true, "heads"),
      {"strided_view",
       "image",
       {1, 3, 8, 12},
       [](const HintTensor& r) {
         return WithShape(r, {1, 8, 12, 3});
       },
       "relabelled"},
      {"other_shape",
       kBlock + ".attn.norm_q",
       {1, 24, 4, 16},
       [](const HintTensor& r) { return WithShape(r, kHidden); }},
      PlantValue("swapped_halves", "transformer/step001/time_text_embed.time_proj", {1, 256},
                 [](const HintTensor& r, int64_t i) { return At(r, (i + 128) % 256); }),
      PlantValue("swapped_parts", "vae/decoder.mid_block.attentions.0.qkv", {8, 96},
                 [](const HintTensor& r, int64_t i) { return At(r, i / 96 * 96 + (i + 32) % 96); }),
      PlantValue(
          "swapped_scale_shift", "transformer/step001/norm_out.linear", {1, 128},
          [](const HintTensor& r, int64_t i) { return At(r, (i + 64) % 128); }, "norm_out"),
      PlantValue(
          "swapped_scale_shift", kBlock + ".img_mod.1", {1, 6 * 64},
          [](const HintTensor& r, int64_t i) {
            constexpr std::array<int64_t, 6> kFrom = {1, 0, 2, 4, 3, 5};
            return At(r, kFrom[static_cast<size_t>(i / 64)] * 64 + i % 64);
          },
          "mod"),
      PlantValue(
          "regrouped_channels", "packed_latents_step1", kHidden,
          [](const HintTensor& r, int64_t i) { return At(r, i / 64 * 64 + i % 16 * 4 + i % 64 / 16); }),
      PlantValue("swapped_channels", "image", {1, 3, 8, 12},
                 [](const HintTensor& r, int64_t i) { return At(r, (2 - i / 96) * 96 + i % 96); }),
      PlantValue(
          "swapped_channels", "image", {1, 4, 8, 12},  // alpha in front
          [](const HintTensor& r, int64_t i) { return At(r, (i / 96 + 3) % 4 * 96 + i % 96); }, "argb"),
      PlantValue("flipped_axis", "image", {1, 3, 8, 12},
                 [](const HintTensor& r, int64_t i) { return At(r, i / 12 * 12 + 11 - i % 12); }),
      PlantValue("swapped_text_image", kBlock + ":attn_output", kHidden,
                 [](const HintTensor& r, int64_t i) { return At(r, (i + 7 * 64) % r.values.size()); }),
      PlantValue("rotated_sequence", "prompt_embeds", kHidden,
                 [](const HintTensor& r, int64_t i) { return At(r, (i + 5 * 64) % r.values.size()); }),
      PlantValue("off_by_one_sequence", "prompt_embeds", kHidden,
                 [](const HintTensor& r, int64_t i) { return i < 64 ? 0.25 : At(r, i - 64); }),
      PlantValue(
          "off_by_one_sequence", "sigmas", {9},
          [](const HintTensor& r, int64_t i) { return i == 8 ? 0.0 : At(r, i + 1); }, "sigmas"),
      {"sequence_window",
       "prompt_embeds",
       {1, 7, 64},
       [](const HintTensor& r) {
         HintTensor run = RandomTensor({1, 41, 64}, 5);
         std::copy(r.values.begin(), r.values.end(), run.values.end() - 7 * 64);
         return run;
       }},
      {"looks_untrained", hidden, kHidden, [](const HintTensor&) { return RandomTensor(kHidden, 1234); }},
      {"looks_untrained", hidden, kHidden,
       [](const HintTensor&) {
         const HintTensor random = RandomTensor(kHidden, 1234);
         return Changed(random, [&](int64_t i) { return 1e-3 * At(random, i); });
       },
       "tiny"},
  };
  return all;
}

class PlantedHints : public testing::TestWithParam<Planted> {};

TEST_P(PlantedHints, AreTheFirst) {
  const Planted& p = GetParam();
  const HintTensor ref = RandomTensor(p.shape, 1);
  const auto hints = HintsFor(p.name, {{p.name, ref}}, p.plant(ref));
  ASSERT_EQ(FirstKind(hints), p.kind);
  EXPECT_GT(hints[0].text.size(), 40u);
  EXPECT_LT(hints[0].nmse_after, p.kind == "looks_untrained" ? INFINITY : 1e-9);
}

TEST_P(PlantedHints, AreTheFirstUnderTheNoiseOfBf16) {
  const Planted& p = GetParam();
  const HintTensor ref = RandomTensor(p.shape, 2);
  EXPECT_EQ(FirstKind(HintsFor(p.name, {{p.name, ref}}, WithBf16Noise(p.plant(ref)))), p.kind);
}

INSTANTIATE_TEST_SUITE_P(Kinds, PlantedHints, testing::ValuesIn(AllPlanted()), [](const auto& info) {
  return info.param.kind + (info.param.label.empty() ? "" : "_" + info.param.label);
});

TEST(Hints, JudgeLargeTensorsByTheirFirstRows) {
  const TempFolder folder;
  const Shape shape = {2, 12, 8};
  const HintTensor whole = RandomTensor(shape, 1);
  WriteNpy(folder.path() / "x.npy", whole.values.data(), shape);
  const record::TensorSet set = record::TensorSet::Open(folder.path());
  const HintTensor rows = ReadRows(set, set.tensors()[0], 100);
  EXPECT_EQ(rows.shape, (Shape{2, 6, 8}));
  ASSERT_EQ(rows.values.size(), 96u);
  EXPECT_EQ(rows.values[47], whole.values[47]);
  EXPECT_EQ(rows.values[48], whole.values[96]);  // the second of the batch begins again
  EXPECT_EQ(ReadRows(set, set.tensors()[0], 1000).values, whole.values);
  EXPECT_TRUE(ReadRows(set, set.tensors()[0], 15).values.empty());

  HintContext context;
  context.ref = context.run = [](const std::string&) { return std::nullopt; };  // as above the limit
  context.ref_rows = [&](const std::string&) { return std::optional(rows); };
  context.run_rows = [&](const std::string&) {
    return std::optional(Changed(rows, [&](int64_t i) { return -At(rows, i); }));
  };
  compare::TensorComparison failed;
  failed.name = "x";
  const auto hints = FindHints(failed, context);
  EXPECT_EQ(FirstKind(hints), "sign");
  EXPECT_NE(hints[0].text.find("[2, 6, 8]"), std::string::npos) << hints[0].text;
  context.run_rows = nullptr;
  EXPECT_EQ(FirstKind(FindHints(failed, context)), "not_tested");
}

// Behind an attention that looks at everything alike: a number per channel would fit any two such tensors.
TEST(Hints, DoNotFitTokensThatAreAlike) {
  const auto alike = [](unsigned seed) {
    const HintTensor random = RandomTensor(kHidden, seed), means = RandomTensor({1, 1, 64}, seed);
    return Changed(random, [&](int64_t i) { return At(means, i % 64) + 1e-3 * At(random, i); });
  };
  const std::string name = kBlock + ":attn_output";
  const std::string kind = FirstKind(HintsFor(name, {{name, alike(1)}}, alike(50)));
  EXPECT_TRUE(kind.empty() || kind == "no_relation") << kind;
}

// A channel's spread shows the weights: here channel c is c + 1 times as wide.
HintTensor WithSpreads(HintTensor tensor) {
  const int64_t channels = tensor.shape[1], inner = ElementCount(tensor.shape) / channels;
  return Changed(tensor,
                 [&](int64_t i) { return At(tensor, i) * static_cast<double>(i / inner % channels + 1); });
}

TEST(Hints, AccuseWeightsOnlyWhereThereAreSome) {
  for (const std::string& name :
       {kBlock + ":attn_output", kBlock + ".img_norm1", kBlock + ".attn.norm_q",
        std::string("vae/decoder.conv_in"), std::string("transformer/step001/time_text_embed.time_proj"),
        std::string("transformer/step001/norm_out.norm"), std::string("vae/pre_decode_latents"),
        std::string("packed_latents_step1"), std::string("a_name/of.theirs")}) {
    const NamedTensors reference = {{name, RandomTensor(kHidden, 1)}};
    EXPECT_EQ(FirstKind(HintsFor(name, reference, RandomTensor(kHidden, 1234))), "no_relation") << name;
  }
}

TEST(Hints, KnowALayerOfWhichOnlyTheBiasIsLeft) {
  const HintTensor ref = RandomTensor(kHidden, 1);
  const auto bias = [](int64_t i) { return std::sin(static_cast<double>(i % kHidden.back())); };
  EXPECT_EQ(FirstKind(HintsFor(kBlock + ".attn.to_k", {{kBlock + ".attn.to_k", ref}}, Changed(ref, bias))),
            "only_bias");
}

// SiLU left out before a matrix may leave a thousandth of a large error.
TEST(Hints, TakeNoFactorThatLeavesMoreThanRounding) {
  const HintTensor ref = RandomTensor(kHidden, 1), noise = RandomTensor(kHidden, 2);
  const auto kind_of = [&](double share) {
    const HintTensor run = Changed(ref, [&](int64_t i) { return 3 * At(ref, i) + share * At(noise, i); });
    return FirstKind(HintsFor(kBlock + ".attn.to_k", {{kBlock + ".attn.to_k", ref}}, run));
  };
  EXPECT_EQ(kind_of(0.01), "constant_factor");
  EXPECT_NE(kind_of(0.05), "constant_factor");
}

TEST(Hints, AccuseNoWeightsWhoseChannelsAreAsWide) {
  const Shape shape = {1, 16, 1, 12, 10};
  const std::string name = "vae/decoder.mid_block.resnets.0.conv1";
  const NamedTensors reference = {{name, WithSpreads(RandomTensor(shape, 1))}};
  EXPECT_EQ(FirstKind(HintsFor(name, reference, WithSpreads(RandomTensor(shape, 2)))), "no_relation");
  EXPECT_EQ(FirstKind(HintsFor(name, reference, RandomTensor(shape, 2))), "looks_untrained");
}

TEST(Hints, AccuseNoWeightsBehindWrongInputs) {
  const TempFolder ref, run;
  unsigned seed = 0;
  for (const char* name : {"transformer/step000/img_in", "transformer/step000/txt_in"}) {
    for (const TempFolder* side : {&ref, &run}) {
      std::filesystem::create_directories(side->path() / "transformer/step000");
      WriteNpy(side->path() / (std::string(name) + ".npy"), RandomTensor(kHidden, ++seed).values.data(),
               kHidden);
    }
  }
  const record::TensorSet ref_set = record::TensorSet::Open(ref.path()),
                          run_set = record::TensorSet::Open(run.path());
  compare::Comparison comparison = compare::CompareSets(ref_set, run_set, {});
  AddHints(comparison, ref_set, run_set);
  ASSERT_EQ(comparison.tensors.size(), 2u);
  EXPECT_EQ(FirstKind(comparison.tensors[0].hints), "looks_untrained");
  EXPECT_EQ(FirstKind(comparison.tensors[1].hints), "no_relation");
}

TEST(Hints, PositionsHaveNoColours) {
  const Shape shape = {3, 1, 40};
  const HintTensor ref = RandomTensor(shape, 1);
  const auto exchanged = [&](const std::string& name) {  // rows and columns
    constexpr std::array<int64_t, 3> kFrom = {0, 2, 1};
    const HintTensor run =
        Changed(ref, [&](int64_t i) { return At(ref, kFrom[static_cast<size_t>(i / 40)] * 40 + i % 40); });
    return HintsFor(name, {{name, ref}}, run);
  };
  const auto hints = exchanged("position_ids");
  EXPECT_EQ(FirstKind(hints), "swapped_parts");
  EXPECT_NE(hints[0].text.find("time, height and width"), std::string::npos) << hints[0].text;
  EXPECT_EQ(FirstKind(exchanged("image")), "swapped_channels");
}

TEST(Hints, PatchesHaveColours) {
  const HintTensor ref = RandomTensor({6, 3 * 2 * 4 * 4}, 1);
  const HintTensor run = Changed(ref, [&](int64_t i) { return At(ref, i + (2 - 2 * (i % 96 / 32)) * 32); });
  EXPECT_EQ(FirstKind(HintsFor("pixel_values", {{"pixel_values", ref}}, run)), "swapped_channels");
}

TEST(Hints, NamesRoundingToSixteenBits) {
  const HintTensor ref = RandomTensor(kHidden, 3);
  const auto kind_of = [&](auto round) {
    return FirstKind(HintsFor("x", {{"x", ref}}, Changed(ref, [&](int64_t i) { return round(At(ref, i)); })));
  };
  EXPECT_EQ(kind_of([](double v) {  // 8 significant bits
              const int e = std::ilogb(v) - 7;
              return std::ldexp(std::nearbyint(std::ldexp(v, -e)), e);
            }),
            "bf16_rounding");
  EXPECT_EQ(kind_of([](double v) {
              const int e = std::ilogb(v) - 7;
              return std::ldexp(std::trunc(std::ldexp(v, -e)), e);
            }),
            "bf16_rounding");
  EXPECT_EQ(kind_of([](double v) {
              const int e = std::ilogb(v) - 10;
              return std::ldexp(std::nearbyint(std::ldexp(v, -e)), e);
            }),
            "fp16_rounding");
}

TEST(Hints, NameAFloat16Overflow) {
  const HintTensor random = RandomTensor(kHidden, 4);
  const HintTensor ref = Changed(random, [&](int64_t i) { return 40000 * At(random, i); });
  const HintTensor infinite = Changed(ref, [&](int64_t i) {
    return std::abs(At(ref, i)) > 65504 ? std::copysign(INFINITY, At(ref, i)) : At(ref, i);
  });
  const HintTensor nan =
      Changed(ref, [&](int64_t i) { return std::abs(At(ref, i)) > 65504 ? NAN : At(ref, i); });
  const HintTensor clamped =
      Changed(ref, [&](int64_t i) { return std::clamp(At(ref, i), -65504.0, 65504.0); });
  for (const HintTensor& run : {infinite, nan, clamped})
    EXPECT_EQ(FirstKind(HintsFor("x", {{"x", ref}}, run)), "fp16_overflow");
}

TEST(Hints, SayWhereNanAppears) {
  const HintTensor ref = RandomTensor(kHidden, 4);
  HintTensor run = ref;
  run.values[17] = NAN;
  run.values[40] = INFINITY;
  const auto hints = HintsFor("x", {{"x", ref}}, run);
  ASSERT_EQ(FirstKind(hints), "nan_appears");
  EXPECT_NE(hints[0].text.find("1 NaN and 1 infinite values appear here, the first at element 17"),
            std::string::npos)
      << hints[0].text;
}

TEST(Hints, NameAnotherStepsTensor) {
  NamedTensors reference;
  for (int step = 0; step < 3; ++step)
    reference["noise_pred_step" + std::to_string(step)] =
        RandomTensor(kHidden, 10 + static_cast<unsigned>(step));
  EXPECT_EQ(FirstKind(HintsFor("noise_pred_step1", reference, reference.at("noise_pred_step2"))),
            "off_by_one_step");
  EXPECT_EQ(FirstKind(HintsFor("noise_pred_step1", reference, reference.at("noise_pred_step0"))),
            "off_by_one_step");
  const NamedTensors padded = {{"transformer/step009/img_in", RandomTensor(kHidden, 1)},
                               {"transformer/step010/img_in", RandomTensor(kHidden, 2)}};
  EXPECT_EQ(
      FirstKind(HintsFor("transformer/step009/img_in", padded, padded.at("transformer/step010/img_in"))),
      "off_by_one_step");
}

TEST(Hints, NameTheTensorThatIsCarried) {
  const NamedTensors reference = {{kBlock + ".attn.to_k", RandomTensor(kHidden, 1)},
                                  {kBlock + ".attn.to_q", RandomTensor(kHidden, 2)},
                                  {"text_encoder.neg/x", RandomTensor(kHidden, 3)},
                                  {"text_encoder/x", RandomTensor(kHidden, 4)}};
  const auto hints = HintsFor(kBlock + ".attn.to_q", reference, reference.at(kBlock + ".attn.to_k"));
  ASSERT_EQ(FirstKind(hints), "carries_other_tensor");
  EXPECT_NE(hints[0].text.find("transformer_blocks.2.attn.to_k"), std::string::npos);
  EXPECT_EQ(FirstKind(HintsFor("text_encoder/x", reference, reference.at("text_encoder.neg/x"))),
            "carries_other_tensor");
}

TEST(Hints, SayThatATensorWasNotTested) {
  const HintContext absent{.ref = [](const std::string&) { return std::nullopt; },
                           .run = [](const std::string&) { return std::nullopt; },
                           .names = {}};
  compare::TensorComparison failed;
  failed.name = "x";
  EXPECT_EQ(FirstKind(FindHints(failed, absent)), "not_tested");
}

// Errors that have none of the causes give no hint.
TEST(Hints, AreSilentAboutErrorsWithoutACause) {
  for (const Shape& shape : {kHidden, Shape{1, 16, 1, 6, 10}, Shape{1, 384}, Shape{2, 64}, Shape{5}}) {
    const HintTensor ref = RandomTensor(shape, 20), noise = RandomTensor(shape, 21);
    const auto expect_silence = [&](const char* what, const auto& value) {
      for (const char* name :
           {"transformer/step000/transformer_blocks.0.img_mod.1", "image", "packed_latents_step1"}) {
        const auto hints = HintsFor(name, {{name, ref}}, Changed(ref, value));
        EXPECT_EQ(FirstKind(hints), "") << what << " in " << ToString(shape) << ": " << hints[0].text;
      }
    };
    for (const double size : {1e-6, 1e-3, 0.1, 1.0})
      expect_silence("noise", [&](int64_t i) { return At(ref, i) + size * At(noise, i); });
    expect_silence("relative noise", [&](int64_t i) { return At(ref, i) * (1 + At(noise, i) / 512); });
    expect_silence("a smooth error",
                   [&](int64_t i) { return At(ref, i) + 1e-3 * std::sin(0.7 + static_cast<double>(i) / 5); });
    expect_silence("one wrong element", [&](int64_t i) { return i == 3 ? At(ref, i) + 5 : At(ref, i); });
    expect_silence("a factor under noise", [&](int64_t i) { return 1.1 * At(ref, i) + 0.02 * At(noise, i); });
    expect_silence("a factor for some", [&](int64_t i) { return i % 3 == 0 ? 2 * At(ref, i) : At(ref, i); });
  }
}

// A fit through as many numbers as there are elements proves nothing.
TEST(Hints, DoNotFitFewElements) {
  const HintTensor ref{{2}, {1, 2}}, run{{2}, {3, 5}};
  EXPECT_EQ(FirstKind(HintsFor("timesteps", {{"timesteps", ref}}, run)), "");
  const HintTensor row = RandomTensor({1, 32}, 1), other = RandomTensor({1, 32}, 2);
  EXPECT_EQ(FirstKind(HintsFor("x", {{"x", row}}, other)), "");
}

TEST(Hints, AcceptWhatTheFloorAllows) {
  const HintTensor ref = RandomTensor(kHidden, 1), noise = RandomTensor(kHidden, 2);
  const HintTensor run = Changed(ref, [&](int64_t i) { return -At(ref, i) + 0.1 * At(noise, i); });
  const NamedTensors reference = {{"x", ref}};
  EXPECT_EQ(FirstKind(HintsFor("x", reference, run)), "");
  HintContext context{.ref = [&](const std::string&) { return std::optional(ref); },
                      .run = [&](const std::string&) { return std::optional(run); },
                      .names = {"x"}};
  compare::TensorComparison failed;
  failed.name = "x";
  failed.criterion = {.kind = compare::Criterion::Kind::kFloor, .factor = 2, .floor = 0.01};
  EXPECT_EQ(FirstKind(FindHints(failed, context)), "sign");
}

// Large enough for the quick look at a sample, with an error that the sample may miss.
TEST(Hints, WorkOnLargeTensors) {
  const Shape shape = {1, 600, 64};
  const HintTensor ref = RandomTensor(shape, 1);
  const HintTensor rotated = Changed(ref, [&](int64_t i) { return At(ref, (i + 77 * 64) % (600 * 64)); });
  EXPECT_EQ(FirstKind(HintsFor("x", {{"x", ref}}, rotated)), "rotated_sequence");
  HintTensor last = ref;
  for (size_t i = last.values.size() - 64; i < last.values.size(); ++i) last.values[i] += 1;
  EXPECT_EQ(FirstKind(HintsFor("x", {{"x", ref}}, last)), "");
}

TEST(Hints, KnowEmbeddingsOfAnEarlierLayer) {
  const std::string layers = "text_encoder/model.language_model.layers.";
  const HintTensor last = RandomTensor({1, 9, 8}, 1), earlier = RandomTensor({1, 9, 8}, 2);
  const auto tail = [](const HintTensor& layer) {
    return HintTensor{{1, 5, 8}, {layer.values.begin() + 4 * 8, layer.values.end()}};
  };
  const NamedTensors reference = {
      {layers + "0", earlier}, {layers + "1", last}, {"prompt_embeds", tail(last)}};
  EXPECT_EQ(FirstKind(HintsFor("prompt_embeds", reference, tail(earlier))), "earlier_layer");
  EXPECT_NE(FirstKind(HintsFor("prompt_embeds", reference, tail(RandomTensor({1, 9, 8}, 3)))),
            "earlier_layer");
}

}  // namespace
}  // namespace qwen_image::hints
