// Wrong builds of the first family (planted_bugs.h), with models/tiny.
#include "planted_bugs.h"

#include <array>
#include <filesystem>
#include <random>

namespace qwen_image {
namespace {

const std::filesystem::path kModel = std::filesystem::path(QWEN_IMAGE_SOURCE_DIR) / "models/tiny";
constexpr int64_t kGridHeight = 3, kGridWidth = 4;        // tokens of the picture
constexpr int64_t kHeads = 4, kHeadDim = 32, kDim = 128;  // of models/tiny
const std::string kPass = "transformer/step000/";

void RunInto(const TempFolder& folder, Bugs bugs) {
  static const Pipeline pipeline(kModel, {.threads = 2});
  GenerateRequest request;
  request.prompt = "a red circle on a blue background";
  request.height = 16 * kGridHeight;
  request.width = 16 * kGridWidth;
  request.steps = 2;
  request.cfg = 4;
  request.seed = 7;
  RunInto(folder, pipeline, request, std::move(bugs));
}

// ── The bugs ──

// [1, C, 1, H, W] as it lies in memory with the channels last.
void MoveChannelsLast(HintTensor& t) {
  const HintTensor old = t;
  const int64_t channels = old.shape[1], area = old.shape[3] * old.shape[4];
  for (int64_t i = 0; i < channels * area; ++i)
    t.values[At(i)] = old.values[At(i % channels * area + i / channels)];
}

// The engine's angles, once more: the picture's rows and columns are centred.
double RopeAngle(int64_t token, int64_t pair) {
  constexpr std::array<int64_t, 3> kPairs = {4, 6, 6};
  const std::array<int64_t, 3> position = {0, token / kGridWidth - (kGridHeight - kGridHeight / 2),
                                           token % kGridWidth - (kGridWidth - kGridWidth / 2)};
  size_t axis = 0;
  while (pair >= kPairs[axis]) pair -= kPairs[axis++];
  return static_cast<double>(position[axis]) *
         std::pow(10000.0, -static_cast<double>(pair) / static_cast<double>(kPairs[axis]));
}

Bug RopeInHalves(const std::string& before) {
  return [before](const Tensors& earlier, HintTensor& t) {
    const std::vector<float>& x = earlier.at(before).values;
    constexpr int64_t kHalf = kHeadDim / 2;
    for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
      const int64_t e = i % kHeadDim;
      const double angle = RopeAngle(i / kDim, e % kHalf);
      const double partner = e < kHalf ? -x[At(i + kHalf)] : x[At(i - kHalf)];
      t.values[At(i)] = static_cast<float>(x[At(i)] * std::cos(angle) + partner * std::sin(angle));
    }
  };
}

Bug AttentionWithScale(const std::string& block, double scale) {
  return [block, scale](const Tensors& earlier, HintTensor& t) {
    const auto joint = [&](const std::string& txt, const std::string& img) {
      std::vector<float> values = earlier.at(block + txt).values;
      const std::vector<float>& rest = earlier.at(block + img).values;
      values.insert(values.end(), rest.begin(), rest.end());
      return values;
    };
    const hints::WrongAttention attention{kHeads, kHeadDim, scale, [](int64_t, int64_t) { return true; }};
    t.values =
        attention.Compute(joint(":txt_query_rope", ":img_query_rope"),
                          joint(":txt_key_rope", ":img_key_rope"), joint(".attn.add_v_proj", ".attn.to_v"));
  };
}

Bug SwappedModulation(const std::string& norm, const std::string& mod, int64_t shift, int64_t scale) {
  return [=](const Tensors& earlier, HintTensor& t) {
    const std::vector<float>&x = earlier.at(norm).values, &m = earlier.at(mod).values;
    for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i)
      t.values[At(i)] = x[At(i)] * (1 + m[At(shift * kDim + i % kDim)]) + m[At(scale * kDim + i % kDim)];
  };
}

Bug AddWithoutGate(const std::string& hidden, const std::string& branch) {
  return [=](const Tensors& earlier, HintTensor& t) {
    const std::vector<float>&x = earlier.at(hidden).values, &b = earlier.at(branch).values;
    for (size_t i = 0; i < x.size(); ++i) t.values[i] = x[i] + b[i];
  };
}

Bug ReplaceByGatedBranch(const std::string& branch, const std::string& mod, int64_t gate) {
  return [=](const Tensors& earlier, HintTensor& t) {
    const std::vector<float>&b = earlier.at(branch).values, &m = earlier.at(mod).values;
    for (int64_t i = 0; i < static_cast<int64_t>(b.size()); ++i)
      t.values[At(i)] = m[At(gate * kDim + i % kDim)] * b[At(i)];
  };
}

Bug GuidanceWithoutRescale() {
  return [](const Tensors& earlier, HintTensor& t) {
    const std::vector<float>&pos = earlier.at("transformer/step000/proj_out").values,
          &neg = earlier.at("transformer/step000.neg/proj_out").values;
    for (size_t i = 0; i < pos.size(); ++i) t.values[i] = neg[i] + 4 * (pos[i] - neg[i]);
  };
}

Bug StepBackwards() {
  return [](const Tensors& earlier, HintTensor& t) {
    const std::vector<float>& before = earlier.at("packed_latents_step0").values;
    for (size_t i = 0; i < before.size(); ++i) t.values[i] = 2 * before[i] - t.values[i];
  };
}

Bug RandomValues() {
  return [](const Tensors&, HintTensor& t) {
    std::mt19937 generator(3);
    std::normal_distribution<float> normal(0, 0.02f);
    for (float& v : t.values) v = normal(generator);
  };
}

double ToBf16(double v) {
  if (v == 0) return 0;
  const int exponent = std::ilogb(v) - 7;
  return std::ldexp(std::nearbyint(std::ldexp(v, -exponent)), exponent);
}

std::vector<PlantedBug> TransformerBugs() {
  const auto block = [](int i) { return kPass + "transformer_blocks." + std::to_string(i); };
  return {
      {"TimeEmbeddingSineFirst", kPass + "time_text_embed.time_proj", "swapped_halves",
       TakeFrom([](const HintTensor&, int64_t i) { return (i + 128) % 256; })},
      {"ModulationPartsSwapped", block(0) + ".img_mod.1", "swapped_scale_shift",
       TakeFrom([](const HintTensor&, int64_t i) {
         constexpr std::array<int64_t, 6> kFrom = {1, 0, 2, 4, 3, 5};
         return kFrom[At(i / kDim)] * kDim + i % kDim;
       })},
      {"ModulatedWithSwappedParts", block(1) + ":txt_modulated2", "swapped_scale_shift",
       SwappedModulation(block(1) + ".txt_norm2", block(1) + ".txt_mod.1", 3, 4)},
      {"NormOutSwapped", kPass + "norm_out", "swapped_scale_shift",
       SwappedModulation(kPass + "norm_out.norm", kPass + "norm_out.linear", 1, 0)},
      {"QueryTransposed", block(1) + ".attn.norm_q", "transposed_axes",
       [](const Tensors&, HintTensor& t) {
         const HintTensor old = t;
         const int64_t tokens = old.shape[1];
         t.shape = {1, kHeads, tokens, kHeadDim};
         for (int64_t i = 0; i < tokens * kDim; ++i) {
           const int64_t head = i / (tokens * kHeadDim), token = i / kHeadDim % tokens;
           t.values[At(i)] = old.values[At(token * kDim + head * kHeadDim + i % kHeadDim)];
         }
       }},
      {"RopeInHalves", block(0) + ":img_query_rope", "rope_pairing", RopeInHalves(block(0) + ".attn.norm_q")},
      {"RopeForgotten", block(1) + ":txt_key_rope", "rope_not_applied", Use(block(1) + ".attn.norm_added_k")},
      {"AttentionUnscaled", block(0) + ":attn_output", "missing_attention_scale",
       AttentionWithScale(block(0), 1)},
      {"AttentionImageFirst", block(2) + ":attn_output", "swapped_text_image",
       TakeFrom([](const HintTensor& old, int64_t i) {
         const auto n = static_cast<int64_t>(old.values.size());
         return (i + n - kGridHeight * kGridWidth * kDim) % n;
       })},
      {"QueryFactor", block(2) + ".attn.to_q", "constant_factor",
       Each([](const HintTensor& old, int64_t i) { return old.values[At(i)] * std::sqrt(32.0); })},
      {"BiasForgotten", block(2) + ".img_mlp.net.0.proj", "missing_bias",
       Each([](const HintTensor& old, int64_t i) {
         return old.values[At(i)] - 0.3 * std::cos(5.0 * (i % 512));
       })},
      {"FeedForwardZero", block(1) + ".txt_mlp.net.2", "all_zero",
       Each([](const HintTensor&, int64_t) { return 0; })},
      {"KeyUntrained", block(1) + ".attn.to_k", "looks_untrained", RandomValues()},
      {"KeyIsQuery", block(1) + ".attn.to_k", "carries_other_tensor", Use(block(1) + ".attn.to_q")},
      {"GateForgotten", block(1) + ":img_attn_residual", "missing_gate",
       AddWithoutGate(block(0) + ":img", block(1) + ".attn.to_out.0")},
      {"ResidualForgotten", block(2) + ":txt", "missing_residual",
       ReplaceByGatedBranch(block(2) + ".txt_mlp", block(2) + ".txt_mod.1", 5)},
      {"StreamClamped", block(2) + ":img", "clamped",
       Each([](const HintTensor& old, int64_t i) { return std::clamp(old.values[At(i)], -0.5f, 0.5f); })},
      {"StreamInBf16", block(1) + ":img", "bf16_rounding",
       Each([](const HintTensor& old, int64_t i) { return ToBf16(old.values[At(i)]); })},
      {"NanInFeedForward", block(2) + ".img_mlp", "nan_appears",
       Each([](const HintTensor& old, int64_t i) { return i == 5 ? NAN : old.values[At(i)]; })},
      {"VelocitySign", kPass + "proj_out", "sign",
       Each([](const HintTensor& old, int64_t i) { return -old.values[At(i)]; })},
  };
}

std::vector<PlantedBug> PipelineBugs() {
  return {
      {"EmbeddingsOffByOne", "text_encoder/model.language_model.embed_tokens", "off_by_one_sequence",
       TakeFrom([](const HintTensor&, int64_t i) { return i < 128 ? i : i - 128; })},
      {"TemplateNotDropped", "prompt_embeds", "sequence_window",
       [](const Tensors& earlier, HintTensor& t) {
         t = earlier.at("text_encoder/model.language_model.norm");
       }},
      {"LatentsPackedOtherwise", "initial_latents_packed", "regrouped_channels",
       TakeFrom([](const HintTensor&, int64_t i) { return i / 64 * 64 + i % 16 * 4 + i % 64 / 16; })},
      {"SigmasOffByOne", "sigmas", "off_by_one_sequence", TakeFrom([](const HintTensor& old, int64_t i) {
         return std::min(i + 1, static_cast<int64_t>(old.values.size()) - 1);
       })},
      {"GuidanceNotRescaled", "noise_pred_step0", "guidance_not_rescaled", GuidanceWithoutRescale()},
      {"StaleVelocity", "noise_pred_step1", "off_by_one_step", Use("noise_pred_step0")},
      {"StepBackwards", "packed_latents_step1", "wrong_step_sign", StepBackwards()},
      {"LatentsNotDenormalized", "vae/pre_decode_latents", "channel_factor_and_offset",
       [](const Tensors&, HintTensor& t) {
         const Json config = ReadJsonFile(kModel / "vae/config.json");
         const auto area = t.shape[3] * t.shape[4];
         for (int64_t i = 0; i < static_cast<int64_t>(t.values.size()); ++i) {
           const float mean = config["latents_mean"][At(i / area)], std = config["latents_std"][At(i / area)];
           t.values[At(i)] = (t.values[At(i)] - mean) / std;
         }
       }},
      {"ChannelsLastReadAsFirst", "vae/decoder.conv_in", "strided_view",
       [](const Tensors&, HintTensor& t) { MoveChannelsLast(t); }},
      {"ChannelsLastSaved", "vae/decoder.mid_block", "nchw_nhwc",
       [](const Tensors&, HintTensor& t) {
         MoveChannelsLast(t);
         t.shape = {1, 1, t.shape[3], t.shape[4], t.shape[1]};
       }},
      {"PictureInZeroToOne", "image", "factor_and_offset",
       Each([](const HintTensor& old, int64_t i) { return old.values[At(i)] * 0.5 + 0.5; })},
      {"PictureBgr", "image", "swapped_channels", TakeFrom([](const HintTensor& old, int64_t i) {
         const int64_t area = old.shape[2] * old.shape[3];
         return (2 - i / area) * area + i % area;
       })},
  };
}

class PlantedBugs : public testing::TestWithParam<PlantedBug> {
 protected:
  static const record::TensorSet& Reference() {
    static const TempFolder folder;
    static const record::TensorSet reference = [] {
      RunInto(folder, {});
      return record::TensorSet::Open(folder.path());
    }();
    return reference;
  }
};

TEST_P(PlantedBugs, AreFoundWhereTheyAreAndNamed) {
  const TempFolder folder;
  RunInto(folder, {{GetParam().checkpoint, GetParam().bug}});
  ExpectFound(Reference(), record::TensorSet::Open(folder.path()), GetParam().checkpoint, GetParam().kind);
}

INSTANTIATE_TEST_SUITE_P(Transformer, PlantedBugs, testing::ValuesIn(TransformerBugs()), LabelOf);
INSTANTIATE_TEST_SUITE_P(Pipeline, PlantedBugs, testing::ValuesIn(PipelineBugs()), LabelOf);

// The real model's stream reaches 4.5e7, the small one's does not: so it is made large in both runs.
TEST(PlantedBugsInALargeStream, Float16Overflow) {
  const Bugs large = {
      {kPass + "txt_in", Each([](const HintTensor& old, int64_t i) { return 60000 * old.values[At(i)]; })}};
  const TempFolder ref, run;
  RunInto(ref, large);
  Bugs overflowing = large;
  const std::string checkpoint = kPass + "transformer_blocks.0:txt_attn_residual";
  overflowing[checkpoint] = Each([](const HintTensor& old, int64_t i) {
    const float v = old.values[At(i)];
    return std::abs(v) > 65504 ? std::copysign(INFINITY, v) : v;
  });
  RunInto(run, overflowing);
  ExpectFound(record::TensorSet::Open(ref.path()), record::TensorSet::Open(run.path()), checkpoint,
              "fp16_overflow");
}

TEST(NoPlantedBug, NothingIsFoundWhereNothingIsWrong) {
  const TempFolder ref, run;
  RunInto(ref, {});
  RunInto(run, {});
  EXPECT_TRUE(
      compare::CompareSets(record::TensorSet::Open(ref.path()), record::TensorSet::Open(run.path()), {})
          .passed());
}

}  // namespace
}  // namespace qwen_image
