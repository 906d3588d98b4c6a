#include "lora/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace qwen_image::lora {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr const char* kQuery = "transformer_blocks.0.attn.to_q";

TEST(LoraNames, EverySpellingIsBroughtToTheModule) {
  struct Case {
    const char *stored, *module;
    Part part;
    bool flat;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"transformer_blocks.0.attn.to_q.lora_down.weight", kQuery, Part::kDown, false},
           {"transformer_blocks.0.attn.to_q.lora_up.weight", kQuery, Part::kUp, false},
           {"diffusion_model.transformer_blocks.0.attn.to_q.lora_A.weight", kQuery, Part::kDown, false},
           {"model.diffusion_model.transformer_blocks.0.attn.to_q.lora_B.weight", kQuery, Part::kUp, false},
           {"transformer.transformer_blocks.0.attn.to_q.lora.down.weight", kQuery, Part::kDown, false},
           {"transformer.transformer_blocks.0.attn.to_q.lora.up.weight", kQuery, Part::kUp, false},
           {"transformer_blocks.0.attn.to_q.lora_A.default.weight", kQuery, Part::kDown, false},
           {"transformer_blocks.0.attn.to_q.lora_B.default.weight", kQuery, Part::kUp, false},
           {"base_model.model.transformer_blocks.0.attn.to_q.lora_A.weight", kQuery, Part::kDown, false},
           {"base_model.model.transformer.transformer_blocks.0.attn.to_q.lora_B", kQuery, Part::kUp, false},
           {"diffusion_model.transformer_blocks.0.attn.to_q.alpha", kQuery, Part::kAlpha, false},
           {"lora_unet_transformer_blocks_0_attn_to_q.lora_down.weight", "transformer_blocks_0_attn_to_q",
            Part::kDown, true},
           {"lora_unet_transformer_blocks_0_attn_to_q.alpha", "transformer_blocks_0_attn_to_q", Part::kAlpha,
            true},
           {"transformer_blocks.7.img_ff.mlp_in.lora_A.weight", "transformer_blocks.7.img_mlp.net.0.proj",
            Part::kDown, false},
           {"transformer_blocks.7.attn.attn_to_out.0.lora_B.weight", "transformer_blocks.7.attn.to_out.0",
            Part::kUp, false},
           {"time_text_embed.linear_1.alpha", "time_text_embed.timestep_embedder.linear_1", Part::kAlpha,
            false},
       }) {
    const auto name = ParseName(c.stored);
    ASSERT_TRUE(name) << c.stored;
    EXPECT_EQ(name->module, c.module) << c.stored;
    EXPECT_EQ(name->part, c.part) << c.stored;
    EXPECT_EQ(name->flat, c.flat) << c.stored;
  }
  for (const char* other : {"transformer_blocks.0.attn.to_q.weight", ".alpha", "", "lora_A.weight"})
    EXPECT_FALSE(ParseName(other)) << other;
}

TEST(LoraNames, LightningIsToldByTheName) {
  for (const char* name :
       {"Qwen-Image-Lightning-8steps-V1.0.safetensors", "qwen_image_LIGHTNING_8step.safetensors",
        "Qwen-Image-Edit-2509-Lightning-8steps-V1.0-bf16.safetensors", "lightning 8-step v4"})
    EXPECT_EQ(LightningSteps(name), 8) << name;
  EXPECT_EQ(LightningSteps("Qwen-Image-Lightning-4steps-V2.0.safetensors"), 4);
  for (const char* name :
       {"Qwen-Image-8steps.safetensors", "lightning.safetensors", "lightning-bolt-style-v8",
        "lightning-18steps", "lightning-steps-8", "lightning-6steps", "stepslightning", ""})
    EXPECT_EQ(LightningSteps(name), 0) << name;
}

TEST(LoraNames, TheNearestTakesTheFewestChangedLetters) {
  const std::vector<std::string> layers = {"a.attn.to_k", "a.attn.to_q", "a.img_mlp.net.2", "proj_out"};
  EXPECT_THAT(NearestLayers("a.attn.to_qq", layers, 2), ElementsAre("a.attn.to_q", "a.attn.to_k"));
  EXPECT_THAT(NearestLayers("a_img_mlp_net_2", layers, 1), ElementsAre("a.img_mlp.net.2"));
  EXPECT_THAT(NearestLayers(std::string(100'000, 'x'), layers, 1), SizeIs(1));
}

}  // namespace
}  // namespace qwen_image::lora
