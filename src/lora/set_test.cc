#include "lora/set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/fail.h"
#include "weights/binder.h"
#include "weights/testing.h"

namespace qwen_image::lora {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr const char* kQuery = "transformer_blocks.0.attn.to_q";
constexpr const char* kOut = "transformer_blocks.0.attn.to_out.0";

// A LoRA of rank 2 for layers of 3 inputs and 4 outputs, in a spelling of its own.
MadeTensors Layer(const std::string& down, const std::string& up, unsigned seed = 1) {
  return {{down, Random({2, 3}, seed, 1)}, {up, Random({4, 2}, seed + 1, 1)}};
}
MadeTensors Plain(const std::string& module, unsigned seed = 1) {
  return Layer(module + ".lora_A.weight", module + ".lora_B.weight", seed);
}

class LoraTest : public testing::Test {
 protected:
  LoraFile Write(const MadeTensors& tensors, double scale = 1, const Json& metadata = nullptr,
                 const std::string& name = "lora.safetensors") const {
    return {folder_.Write(name, WeightsBytes(tensors, metadata)), scale};
  }
  // The model of these tests has two layers.
  static void TakeBoth(Set& loras) {
    loras.Take(kQuery, 4, 3);
    loras.Take(kOut, 4, 3);
    loras.Finish();
  }
  static Set Open(const std::vector<LoraFile>& files) {
    Set loras(files);
    TakeBoth(loras);
    return loras;
  }
  std::string Refused(const MadeTensors& tensors, double scale = 1, const Json& metadata = nullptr) const {
    const LoraFile file = Write(tensors, scale, metadata);
    return MessageOf(ErrorKind::kBadInput, [&] { Open({file}); });
  }
  double FactorOf(const MadeTensors& tensors, const Json& metadata = nullptr, double scale = 1) const {
    Set loras({Write(tensors, scale, metadata)});
    const auto& updates = loras.Take(kQuery, 4, 3);
    loras.Finish();
    return updates.size() == 1 ? updates[0].factor : std::nan("");
  }
  static std::vector<float> Delta(const Set& loras, const std::string& module) {
    std::vector<float> values(12);
    loras.AddTo(module, 0, 4, values.data());
    return values;
  }

  TempFolder folder_;
};

TEST_F(LoraTest, EveryStyleChangesTheLayerInTheSameWay) {
  const Set reference = Open({Write(Plain(kOut))});
  const std::vector<float> want = Delta(reference, kOut);
  const std::string flat = "transformer_blocks_0_attn_to_out_0";
  for (const auto& [down, up] : std::vector<std::pair<std::string, std::string>>{
           {std::string(kOut) + ".lora_down.weight", std::string(kOut) + ".lora_up.weight"},
           {std::string("transformer.") + kOut + ".lora.down.weight",
            std::string("transformer.") + kOut + ".lora.up.weight"},
           {std::string("diffusion_model.") + kOut + ".lora_A.weight",
            std::string("diffusion_model.") + kOut + ".lora_B.weight"},
           {std::string(kOut) + ".lora_A.default.weight", std::string(kOut) + ".lora_B.default.weight"},
           {std::string("base_model.model.") + kOut + ".lora_A.weight",
            std::string("base_model.model.") + kOut + ".lora_B.weight"},
           {"transformer_blocks.0.attn.attn_to_out.0.lora_A",
            "transformer_blocks.0.attn.attn_to_out.0.lora_B"},
           {"lora_unet_" + flat + ".lora_down.weight", "lora_unet_" + flat + ".lora_up.weight"},
           {"lora_transformer_" + flat + ".lora_down.weight", "lora_transformer_" + flat + ".lora_up.weight"},
           {"lycoris_" + flat + ".lora_down.weight", "lycoris_" + flat + ".lora_up.weight"},
       }) {
    const Set loras = Open({Write(Layer(down, up))});
    EXPECT_EQ(Delta(loras, kOut), want) << down;
    EXPECT_EQ(loras.applied()[0].layers, 1) << down;
  }
}

TEST_F(LoraTest, AddToIsTheProductTimesTheScaleAndAlpha) {
  MadeTensors tensors = {{std::string(kQuery) + ".lora_A.weight", Floats({1, 3}, {1, 2, 3})},
                         {std::string(kQuery) + ".lora_B.weight", Floats({4, 1}, {1, 0, -1, 10})},
                         {std::string(kQuery) + ".alpha", Floats({}, {0.5f})}};
  const Set loras = Open({Write(tensors, -4)});
  std::vector<float> values(9, 100);
  loras.AddTo(kQuery, 1, 3, values.data());
  EXPECT_THAT(values, ElementsAre(100, 100, 100, 102, 104, 106, 80, 60, 40));
  values.assign(9, 100);
  loras.AddTo(kOut, 1, 3, values.data());
  EXPECT_THAT(values, testing::Each(100));
}

TEST_F(LoraTest, SeveralAddUpAndAreReportedInTheirOrder) {
  MadeTensors both = Plain(kQuery, 1);
  both.merge(Plain(kOut, 5));
  const LoraFile first = Write(both, 0.7, nullptr, "first.safetensors");
  const LoraFile second = Write(Plain(kQuery, 9), -0.5, nullptr, "Lightning-4steps.safetensors");
  const Set loras = Open({first, second});
  const std::vector<float> sum = Delta(loras, kQuery), one = Delta(Open({first}), kQuery),
                           two = Delta(Open({second}), kQuery);
  for (size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(sum[i], one[i] + two[i], 1e-6);
  ASSERT_THAT(loras.applied(), SizeIs(2));
  EXPECT_EQ(loras.applied()[0].name, "first.safetensors");
  EXPECT_EQ(loras.applied()[0].scale, 0.7);
  EXPECT_EQ(loras.applied()[0].layers, 2);
  EXPECT_EQ(loras.applied()[0].total, 2);
  EXPECT_EQ(loras.applied()[0].min_rank, 2);
  EXPECT_EQ(loras.applied()[0].lightning_steps, 0);
  EXPECT_EQ(loras.applied()[1].layers, 1);
  EXPECT_EQ(loras.applied()[1].lightning_steps, 4);
}

TEST_F(LoraTest, LightningIsToldByTheTitleToo) {
  const Json title = {{"modelspec.title", "Qwen-Image-Lightning 8 steps"}};
  EXPECT_EQ(Open({Write(Plain(kQuery), 1, title)}).applied()[0].lightning_steps, 8);
}

TEST_F(LoraTest, AScaleOfZeroIsAppliedAndCostsNothing) {
  Set loras({Write(Plain(kQuery), 0)});
  EXPECT_THAT(loras.Take(kQuery, 4, 3), IsEmpty());
  loras.Finish();
  EXPECT_EQ(loras.applied()[0].layers, 1);
}

TEST_F(LoraTest, AlphaIsDividedByTheRank) {
  MadeTensors tensors = Plain(kQuery);
  EXPECT_EQ(FactorOf(tensors), 1);
  tensors[std::string(kQuery) + ".alpha"] = Floats({1}, {3});
  EXPECT_EQ(FactorOf(tensors), 1.5);
  EXPECT_EQ(FactorOf(tensors, nullptr, -2), -3);
  tensors[std::string(kQuery) + ".alpha"] = {"BF16", {}, std::string("\x80\x3f", 2)};
  EXPECT_EQ(FactorOf(tensors), 0.5);
}

Json Metadata(const Json& config) { return {{"format", "pt"}, {"lora_adapter_metadata", config.dump()}}; }

// As PEFT 0.21 computes its scaling, and diffusers 0.42 hands the settings to it.
TEST_F(LoraTest, AlphaMayBeInTheMetadata) {
  MadeTensors tensors = Plain(kQuery);
  EXPECT_EQ(FactorOf(tensors, Metadata({{"transformer.r", 2}, {"transformer.lora_alpha", 5}})), 2.5);
  EXPECT_EQ(FactorOf(tensors, Metadata({{"r", 2}, {"lora_alpha", 5}})), 2.5);
  EXPECT_EQ(FactorOf(tensors, Metadata({{"transformer.r", 2}})), 4);  // PEFT's alpha is 8
  EXPECT_FLOAT_EQ(
      static_cast<float>(FactorOf(
          tensors,
          Metadata({{"transformer.r", 2}, {"transformer.lora_alpha", 5}, {"transformer.use_rslora", true}}))),
      5 / std::sqrt(2.0f));
  const Json patterns = {{"transformer.r", 64},
                         {"transformer.lora_alpha", 64},
                         {"transformer.rank_pattern", {{"^transformer_blocks.0.attn.to_q", 2}}},
                         {"transformer.alpha_pattern", {{"attn.to_q", 1}, {"to_k", 7}}}};
  EXPECT_EQ(FactorOf(tensors, Metadata(patterns)), 0.5);
  EXPECT_EQ(FactorOf(tensors, Metadata({{"text_encoder.r", 4}})), 1);
  tensors[std::string(kQuery) + ".alpha"] = Floats({}, {1});
  EXPECT_EQ(FactorOf(tensors, Metadata({{"transformer.r", 2}, {"transformer.lora_alpha", 5}})), 1.25);
}

TEST_F(LoraTest, BesidePeftsFileAreItsSettings) {
  folder_.Write("adapter_config.json", R"({"peft_type": "LORA", "r": 2, "lora_alpha": 6})");
  EXPECT_EQ(FactorOf(Plain(std::string("base_model.model.") + kQuery)), 3);
  EXPECT_EQ(FactorOf(Plain(kQuery)), 1) << "the settings of another file";
}

TEST_F(LoraTest, SettingsThatDoNotFitAreRefused) {
  const MadeTensors tensors = Plain(kQuery);
  EXPECT_THAT(Refused(tensors, 1, Metadata({{"transformer.r", 16}})),
              AllOf(HasSubstr("transformer_blocks.0.attn.to_q has rank 2"), HasSubstr("says 16")));
  EXPECT_THAT(Refused(tensors, 1, Metadata({{"r", 2}, {"use_dora", true}})),
              HasSubstr("use_dora is not supported"));
  EXPECT_THAT(Refused(tensors, 1, Metadata({{"r", 2}, {"peft_type", "LOKR"}})),
              HasSubstr("\"LOKR\", not LORA"));
  EXPECT_THAT(Refused(tensors, 1, Metadata({{"r", 2}, {"alpha_pattern", {{"(a+)+", 1}}}})),
              HasSubstr("names of modules are expected"));
  EXPECT_THAT(Refused(tensors, 1, Metadata({{"r", 0}})), HasSubstr("\"r\" is 0"));
  EXPECT_THAT(Refused(tensors, 1, {{"lora_adapter_metadata", "[1"}}), HasSubstr("lora_adapter_metadata"));
  EXPECT_THAT(Refused(tensors, 1, {{"lora_adapter_metadata", "[1]"}}), HasSubstr("is not an object"));
}

TEST_F(LoraTest, PartialCoverageIsAnErrorWithTheNearestNames) {
  MadeTensors tensors = Plain(kQuery);
  tensors.merge(Plain("transformer_blocks.0.attn.to_qq", 5));
  for (const char* block : {"1", "2", "3"})
    tensors.merge(Plain(std::string("transformer_blocks.") + block + ".attn.to_out.0", 7));
  const std::string message = Refused(tensors);
  EXPECT_THAT(message, HasSubstr("lora.safetensors: this LoRA cannot be applied; 1 of 5 layers fit"));
  EXPECT_THAT(message,
              HasSubstr("\n  transformer_blocks.0.attn.to_qq: the transformer has no such layer; nearest: "
                        "transformer_blocks.0.attn.to_q, transformer_blocks.0.attn.to_out.0"));
  EXPECT_THAT(message,
              HasSubstr("\n  transformer_blocks.{1…3}.attn.to_out.0: the transformer has no such layer"));
}

TEST_F(LoraTest, NoCoverageNamesTheModelItIsFor) {
  EXPECT_THAT(Refused(Layer("lora_unet_double_blocks_0_img_attn_proj.lora_down.weight",
                            "lora_unet_double_blocks_0_img_attn_proj.lora_up.weight")),
              AllOf(HasSubstr("0 of 1 layers fit"), HasSubstr("it is one of Flux")));
  EXPECT_THAT(Refused(Plain("transformer.single_transformer_blocks.0.attn.to_q")),
              HasSubstr("it is one of Flux"));
  // Underscores stand for dots only where the name says so.
  EXPECT_THAT(Refused(Plain("transformer_blocks_0_attn_to_q")),
              HasSubstr("nearest: transformer_blocks.0.attn.to_q"));
}

TEST_F(LoraTest, OtherAdaptersAreRefusedByName) {
  const auto with = [](const std::string& ending, const Shape& shape) {
    MadeTensors tensors = Plain(kQuery);
    tensors[std::string(kQuery) + ending] = Constant(shape, 1);
    return tensors;
  };
  EXPECT_THAT(
      Refused(with(".dora_scale", {4, 1})),
      HasSubstr(
          "this is DoRA, which this version does not apply: transformer_blocks.0.attn.to_q.dora_scale"));
  EXPECT_THAT(Refused(with(".lora_magnitude_vector", {4})), HasSubstr("DoRA"));
  EXPECT_THAT(Refused(with(".lora_B.bias", {4})), HasSubstr("a LoRA with biases"));
  EXPECT_THAT(Refused(with(".diff_b", {4})), HasSubstr("whole differences of weights"));
  EXPECT_THAT(Refused(with(".lora_mid.weight", {2, 2, 3, 3})), HasSubstr("convolutions"));
  EXPECT_THAT(Refused({{"x.lokr_w1", Constant({2}, 1)}, {"x.lokr_w2", Constant({2}, 1)}}),
              HasSubstr("LoKr, which this version does not apply: x.lokr_w1, x.lokr_w2"));
  EXPECT_THAT(Refused({{"x.hada_w1_a", Constant({2}, 1)}}), HasSubstr("LoHa"));
  MadeTensors text = Plain(kQuery);
  text.merge(Plain("text_encoder.model.layers.0.self_attn.q_proj"));
  text.merge(Plain("lora_te_layers_0"));
  EXPECT_THAT(Refused(text),
              AllOf(HasSubstr("a LoRA for the text encoder, which this version does not apply: "
                              "lora_te_layers_0.lora_A.weight"),
                    HasSubstr("text_encoder.model.layers.0")));
  EXPECT_THAT(Refused(with(".surprise", {1})), HasSubstr("to_q.surprise is not a known part of a LoRA"));
}

TEST_F(LoraTest, BrokenLayersAreRefusedAllAtOnce) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const auto layer = [](const std::string& name, MadeTensor down, MadeTensor up) {
    return MadeTensors{{name + ".lora_A.weight", std::move(down)}, {name + ".lora_B.weight", std::move(up)}};
  };
  MadeTensors tensors = {{"a.lora_A.weight", Constant({2, 3}, 1)}, {"b.lora_B.weight", Constant({4, 2}, 1)}};
  tensors.merge(layer("c", Constant({2, 3}, 1), Constant({4, 3}, 1)));
  tensors.merge(layer("d", Constant({0, 3}, 1), Constant({4, 0}, 1)));
  tensors.merge(layer("e", Floats({1, 3}, {1, nan, 1}), Constant({4, 1}, 1)));
  tensors.merge(layer("f", Constant({1, 3}, 1), Floats({2, 1}, {1, inf})));
  tensors.merge(layer("g", Constant({2, 3, 1, 1}, 1), Constant({4, 2, 1, 1}, 1)));
  tensors.merge(layer("h", Constant({6}, 1), Constant({4, 2}, 1)));
  tensors.merge(layer("i", {"I32", {1, 3}, std::string(12, 'x')}, Constant({4, 1}, 1)));
  tensors.merge(Plain("j"));
  tensors["j.alpha"] = Floats({}, {nan});
  tensors.merge(Plain("k"));
  tensors["k.alpha"] = Floats({2}, {1, 2});
  tensors["l.alpha"] = Floats({}, {1});
  const int64_t endless = int64_t{1} << 50;
  tensors.merge(layer("m", {"F32", {endless, 0}, ""}, {"F32", {0, endless}, ""}));
  tensors.merge(layer(kQuery, Constant({2, 5}, 1), Constant({4, 2}, 1)));
  tensors.merge(layer(kOut, Constant({2, 3}, 1), Constant({9, 2}, 1)));
  const std::string message = Refused(tensors);
  EXPECT_THAT(message, HasSubstr("0 of 15 layers fit"));
  for (const char* line : {
           "a has no up (B) matrix, only a.lora_A.weight",
           "b has no down (A) matrix, only b.lora_B.weight",
           "c.lora_B.weight has shape [4, 3], but c.lora_A.weight has [2, 3]: their ranks 3 and 2 differ",
           "d has rank 0",
           "e.lora_A.weight holds nan at [0, 1], expected finite numbers",
           "f.lora_B.weight holds inf at [1, 0], expected finite numbers",
           "g.lora_A.weight has shape [2, 3, 1, 1]: a LoRA for convolutions",
           "h.lora_A.weight has shape [6], expected [rank, in]",
           "i.lora_A.weight has type I32",
           "j.alpha is nan",
           "k.alpha has shape [2], expected one number",
           "l has no down (A) matrix, only l.alpha",
           "m holds nothing: down has shape [1125899906842624, 0], up [0, 1125899906842624]",
           ("transformer_blocks.0.attn.to_q is for a layer of 5 inputs and 4 outputs (down [2, 5], up [4, "
            "2]), but the transformer's has 3 and 4"),
           "transformer_blocks.0.attn.to_out.0 is for a layer of 3 inputs and 9 outputs",
       })
    EXPECT_THAT(message, HasSubstr(std::string("\n  ") + line));
}

TEST_F(LoraTest, ALayerThereTwiceIsRefused) {
  MadeTensors same = Plain(kQuery);
  same.merge(Plain(std::string("diffusion_model.") + kQuery));
  EXPECT_THAT(Refused(same), HasSubstr("are the same: down (A) of transformer_blocks.0.attn.to_q"));
  MadeTensors flat = Plain(kQuery);
  flat.merge(Plain("lora_unet_transformer_blocks_0_attn_to_q"));
  EXPECT_THAT(Refused(flat), HasSubstr("to_q is there twice, also as transformer_blocks_0_attn_to_q"));
}

TEST_F(LoraTest, AllFilesAreInOneError) {
  const LoraFile first = Write(Plain("x"), 1, nullptr, "first.safetensors");
  const LoraFile good = Write(Plain(kQuery), 1, nullptr, "good.safetensors");
  const LoraFile second = Write({{"y.hada_w1_a", Constant({2}, 1)}}, 1, nullptr, "second.safetensors");
  EXPECT_THAT(
      MessageOf(ErrorKind::kBadInput,
                [&] {
                  Open({first, good, second});
                }),
      AllOf(HasSubstr("first.safetensors: this LoRA"), HasSubstr("\n"), Not(HasSubstr("good.safetensors")),
            HasSubstr("second.safetensors: this LoRA cannot be applied\n")));
}

TEST_F(LoraTest, LongListsAreCut) {
  MadeTensors tensors;
  for (int i = 0; i < 100; ++i) tensors.merge(Plain(std::string("layer_") + std::to_string(i) + "_x\n\x1b"));
  const std::string message = Refused(tensors);
  EXPECT_THAT(message, HasSubstr("0 of 100 layers fit"));
  EXPECT_THAT(message, HasSubstr("… and 60 more"));
  EXPECT_THAT(message, Not(HasSubstr("\x1b")));
}

TEST_F(LoraTest, FilesThatAreNoLora) {
  const auto refused = [](const std::filesystem::path& path) {
    return MessageOf(ErrorKind::kBadInput, [&] { Set({LoraFile{path, 1}}); });
  };
  EXPECT_THAT(refused(Write({{"txt_norm.weight", Constant({2, 2}, 1)}}).path),
              HasSubstr("a LoRA is expected here, but this is the transformer of a Qwen-Image model"));
  EXPECT_THAT(refused(Write({{"x.weight", Constant({2, 2}, 1)}}).path),
              HasSubstr("none of the file's 1 tensors is a part of one"));
  EXPECT_THAT(refused(Write({}).path), HasSubstr("none of the file's 0 tensors"));
  EXPECT_THAT(refused(folder_.path()), HasSubstr("is a folder"));
  EXPECT_THAT(refused(folder_.path() / "absent"), HasSubstr("there is no"));
  EXPECT_THAT(refused(folder_.Write("text", "hello, this is no weight file at all")), HasSubstr("text"));
  const LoraFile good = Write(Plain(kQuery));
  EXPECT_THAT(MessageOf(ErrorKind::kUsage,
                        [&] {
                          Set({LoraFile{good.path, NAN}});
                        }),
              HasSubstr("finite number"));
  EXPECT_THAT(Refused(Plain(kQuery), 1e300), HasSubstr("too large"));
}

// A broken model is reported before the layers that a LoRA does not find in it.
TEST_F(LoraTest, ABrokenModelIsToldFirst) {
  const MadeTensors weights = {{std::string(kQuery) + ".weight", Constant({4, 3}, 1)}};
  WeightStore store(folder_.Write("model.safetensors", WeightsBytes(weights)), Component::kTransformer);
  Set loras({Write(Plain("x"))});
  WeightBinder binder(store, &loras);
  binder.Matrix(std::string(kQuery) + ".weight", {4, 3});
  EXPECT_THAT(binder.Updates(kQuery, 4, 3), IsEmpty());
  binder.Floats("absent", {1});
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { binder.Finish(); }),
              AllOf(HasSubstr("absent is missing"), Not(HasSubstr("LoRA"))));
  WeightBinder whole(store, &loras);
  whole.Matrix(std::string(kQuery) + ".weight", {4, 3});
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { whole.Finish(); }),
              HasSubstr("x: the transformer has no"));
}

TEST_F(LoraTest, TakeAllFindsTheMatricesOfAStore) {
  const MadeTensors weights = {{std::string(kQuery) + ".weight", Constant({4, 3}, 1)},
                               {std::string(kQuery) + ".bias", Constant({4}, 1)},
                               {"txt_norm.weight", Constant({4}, 1)}};
  const WeightStore store(folder_.Write("model.safetensors", WeightsBytes(weights)), Component::kTransformer);
  Set loras({Write(Plain(kQuery))});
  loras.TakeAll(store);
  loras.Finish();
  EXPECT_EQ(loras.applied()[0].layers, 1);
  Set norm({Write(Plain("txt_norm"))});
  norm.TakeAll(store);
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { norm.Finish(); }),
              HasSubstr("txt_norm: the transformer has no"));
}

}  // namespace
}  // namespace qwen_image::lora
