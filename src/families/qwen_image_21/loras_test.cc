// LoRAs for Qwen-Image-2.1 as trainers spell them, and the errors of those that are for another model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/fail.h"
#include "families/qwen_image_21/vocabulary.h"
#include "lora/set.h"
#include "weights/names.h"
#include "weights/testing.h"

namespace qwen_image::qwen_image_21 {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kGate = "transformer_blocks.0.img_mlp.gate_layer";
constexpr const char* kUp = "transformer_blocks.0.img_mlp.proj";
constexpr int64_t kIn = 3, kOut = 4, kRank = 2;

class Loras21 : public ::testing::Test {
 protected:
  LoraFile Write(const MadeTensors& tensors, const Json& metadata = nullptr) const {
    return {folder_.Write("lora.safetensors", WeightsBytes(tensors, metadata)), 1};
  }
  // A model of these layers, all of one size.
  static lora::Set Open(const LoraFile& file, const std::vector<std::string>& modules) {
    lora::Set loras({file});
    for (const std::string& module : modules) loras.Take(module, kOut, kIn);
    loras.Finish();
    return loras;
  }
  static std::vector<float> Delta(const lora::Set& loras, const std::string& module) {
    std::vector<float> values(static_cast<size_t>(kOut * kIn));
    loras.AddTo(module, 0, kOut, values.data());
    return values;
  }
  std::string Refused(const MadeTensors& tensors, const std::vector<std::string>& modules) const {
    const LoraFile file = Write(tensors);
    return MessageOf(ErrorKind::kBadInput, [&] { Open(file, modules); });
  }
  static std::string Flat(const std::string& module) { return "lora_unet_" + FlatName(module); }

  const ScopedVocabulary family_{kQwenImage21Vocabulary};
  TempFolder folder_;
};

TEST_F(Loras21, EveryLayerInEverySpelling) {
  const std::vector<std::string> modules = {
      "transformer_blocks.0.attn.to_q",
      "transformer_blocks.0.attn.to_k",
      "transformer_blocks.0.attn.to_v",
      "transformer_blocks.0.attn.to_out.0",
      kGate,
      kUp,
      "transformer_blocks.0.img_mlp.out",
      "modulation.1",
      "time_text_embed.timestep_embedder.linear_1",
      "time_text_embed.timestep_embedder.linear_2",
      "txt_in.in_layer",
      "txt_in.out_layer",
      "img_in",
      "norm_out.linear",
      "proj_out",
  };
  const auto write = [&](const std::function<std::string(const std::string&)>& spell, const std::string& down,
                         const std::string& up) {
    MadeTensors tensors;
    for (size_t i = 0; i < modules.size(); ++i) {
      tensors[spell(modules[i]) + down] = Random({kRank, kIn}, static_cast<unsigned>(2 * i), 1);
      tensors[spell(modules[i]) + up] = Random({kOut, kRank}, static_cast<unsigned>(2 * i + 1), 1);
    }
    return Write(tensors);
  };
  const auto with = [](const std::string& prefix) {
    return [prefix](const std::string& module) { return prefix + module; };
  };
  const lora::Set reference = Open(write(with(""), ".lora_A.weight", ".lora_B.weight"), modules);
  std::vector<std::vector<float>> expected;
  for (const std::string& module : modules) expected.push_back(Delta(reference, module));
  const auto check = [&](const LoraFile& file, const char* style) {
    const lora::Set loras = Open(file, modules);
    EXPECT_EQ(loras.applied()[0].layers, std::ssize(modules)) << style;
    for (size_t i = 0; i < modules.size(); ++i) EXPECT_EQ(Delta(loras, modules[i]), expected[i]) << style;
  };
  check(write(with("transformer."), ".lora_A.weight", ".lora_B.weight"), "diffusers");
  check(write(with("diffusion_model."), ".lora_A.weight", ".lora_B.weight"), "ComfyUI");
  check(write(with(""), ".lora_A.default.weight", ".lora_B.default.weight"), "bare, default");
  check(write(with("transformer."), ".lora_A.default.weight", ".lora_B.default.weight"), "default");
  check(write(with("base_model.model."), ".lora_A.weight", ".lora_B.weight"), "PEFT");
  check(write(Flat, ".lora_down.weight", ".lora_up.weight"), "kohya");
  const auto mflux = [](const std::string& module) {
    return module == "modulation.1" ? "modulation.layers.1" : module;
  };
  check(write(mflux, ".lora_A.weight", ".lora_B.weight"), "mflux");
}

// ComfyUI's models have both layers as one: down is shared, up's rows are halved.
TEST_F(Loras21, FusedLayers) {
  const MadeTensor down = Random({kRank, kIn}, 1, 1), up = Random({2 * kOut, kRank}, 2, 1);
  const size_t half = up.bytes.size() / 2;
  const MadeTensor first{"F32", {kOut, kRank}, up.bytes.substr(0, half)},
      second{"F32", {kOut, kRank}, up.bytes.substr(half)};
  const MadeTensor alpha = Constant({}, 3);
  const lora::Set reference = Open(Write({{std::string(kGate) + ".lora_A.weight", down},
                                          {std::string(kGate) + ".lora_B.weight", first},
                                          {std::string(kGate) + ".alpha", alpha},
                                          {std::string(kUp) + ".lora_A.weight", down},
                                          {std::string(kUp) + ".lora_B.weight", second},
                                          {std::string(kUp) + ".alpha", alpha}}),
                                   {kGate, kUp});
  const std::vector<float> gate = Delta(reference, kGate), proj = Delta(reference, kUp);
  ASSERT_NE(gate, proj);
  const std::string fused = "transformer_blocks.0.img_mlp.gate_up";
  for (const auto& [module, down_end, up_end] : std::vector<std::array<std::string, 3>>{
           {"transformer." + fused, ".lora_A.weight", ".lora_B.weight"},
           {"diffusion_model." + fused, ".lora_A.weight", ".lora_B.weight"},
           {fused, ".lora_A.default.weight", ".lora_B.default.weight"},
           {Flat(fused), ".lora_down.weight", ".lora_up.weight"}}) {
    const lora::Set loras = Open(
        Write({{module + down_end, down}, {module + up_end, up}, {module + ".alpha", alpha}}), {kGate, kUp});
    EXPECT_EQ(Delta(loras, kGate), gate) << module;
    EXPECT_EQ(Delta(loras, kUp), proj) << module;
    EXPECT_EQ(loras.applied()[0].layers, 2) << module;
  }
  // Settings of the adapter name the layer as it was trained.
  const Json config = {
      {"transformer.r", kRank}, {"transformer.lora_alpha", 2}, {"transformer.alpha_pattern", {{fused, 6}}}};
  const lora::Set settings = Open(Write({{fused + ".lora_A.weight", down}, {fused + ".lora_B.weight", up}},
                                        {{"lora_adapter_metadata", config.dump()}}),
                                  {kGate, kUp});
  const std::vector<float> scaled = Delta(settings, kGate);
  for (size_t i = 0; i < gate.size(); ++i) EXPECT_NEAR(scaled[i], 2 * gate[i], 1e-5);
}

TEST_F(Loras21, FusedLayersThatDoNotFit) {
  const std::string fused = "transformer_blocks.0.img_mlp.gate_up";
  const MadeTensor down = Random({kRank, kIn}, 1, 1);
  EXPECT_THAT(Refused({{fused + ".lora_A.weight", down}, {fused + ".lora_B.weight", Random({7, kRank}, 2)}},
                      {kGate, kUp}),
              AllOf(HasSubstr(fused + ": the transformer has no such layer"), HasSubstr(kGate)));
  EXPECT_THAT(Refused({{fused + ".lora_A.weight", down}, {fused + ".lora_B.weight", Random({6, kRank}, 2)}},
                      {kGate, kUp}),
              AllOf(HasSubstr(std::string(kGate) + " is for a layer of 3 inputs and 3 outputs"),
                    HasSubstr("0 of 2 layers fit")));
  EXPECT_THAT(Refused({{fused + ".lora_A.weight", down},
                       {fused + ".lora_B.weight", Random({8, kRank}, 2)},
                       {std::string(kUp) + ".lora_A.weight", down},
                       {std::string(kUp) + ".lora_B.weight", Random({4, kRank}, 3)}},
                      {kGate, kUp}),
              AllOf(HasSubstr(std::string(kUp) + " is there twice"), HasSubstr(fused)));
  EXPECT_THAT(Refused({{fused + ".lora_A.weight", down}}, {kGate, kUp}), HasSubstr("has no up (B) matrix"));
}

// The error names the model that a LoRA is for, where its layers tell.
TEST_F(Loras21, ThoseOfTheOtherFamily) {
  const auto layer = [](const std::string& module) {
    return MadeTensors{{module + ".lora_A.weight", Random({kRank, kIn}, 1)},
                       {module + ".lora_B.weight", Random({kOut, kRank}, 2)}};
  };
  const std::string query = "transformer_blocks.0.attn.to_q";
  EXPECT_THAT(Refused(layer("transformer_blocks.0.img_mlp.net.2"), {query, kGate}),
              AllOf(HasSubstr("this LoRA cannot be applied; it is one for Qwen-Image;"),
                    HasSubstr("0 of 1 layers fit")));
  EXPECT_THAT(Refused(layer("transformer." + std::string(kGate)), {query}),
              HasSubstr("it is one for Qwen-Image-2.1;"));
  EXPECT_THAT(Refused({{Flat(kUp) + ".lora_down.weight", Random({kRank, kIn}, 1)},
                       {Flat(kUp) + ".lora_up.weight", Random({kOut, kRank}, 2)}},
                      {query}),
              HasSubstr("it is one for Qwen-Image-2.1;"));
  EXPECT_THAT(Refused(layer("transformer_blocks.0.attn.to_qq"), {query}), Not(HasSubstr("it is one for")));
  // By its sizes alone.
  MadeTensors narrow = {{query + ".lora_A.weight", Random({kRank, 2}, 1)},
                        {query + ".lora_B.weight", Random({2, kRank}, 2)}};
  EXPECT_THAT(Refused(narrow, {query}), HasSubstr("is for a layer of 2 inputs and 2 outputs"));
}

}  // namespace
}  // namespace qwen_image::qwen_image_21
