#include "parity/record/level.h"

#include <gtest/gtest.h>

#include "qwen_image/error.h"

namespace qwen_image::record {
namespace {

TEST(Level, BoundariesBlocksAndTheRest) {
  for (const char* name : {"input_ids", "prompt_embeds", "packed_latents_step3", "vae/pre_decode_latents",
                           "image", "vae_image0", "image_latents", "pixel_values"}) {
    EXPECT_EQ(LevelOf(name), CheckpointLevel::kBoundaries) << name;
  }
  for (const char* name :
       {"text_encoder/model.language_model.layers.12", "text_encoder.neg/model.language_model.norm",
        "transformer/step000.neg/transformer_blocks.3:img", "transformer/step010/proj_out",
        "vae/decoder.up_blocks.1", "vae/post_quant_conv", "text_encoder/model.visual",
        "text_encoder/model.visual.patch_embed", "text_encoder/model.visual.blocks.31",
        "vae.image1/encoder.down_blocks.7", "vae.image0/quant_conv"}) {
    EXPECT_EQ(LevelOf(name), CheckpointLevel::kBlocks) << name;
  }
  for (const char* name :
       {"text_encoder/model.language_model.layers.0.mlp",
        "transformer/step000/transformer_blocks.3:img_query_rope", "transformer/step000/norm_out.linear",
        "vae/decoder.up_blocks.1.resnets.0", "text_encoder/model.visual.blocks.3.attn.qkv",
        "vae.image0/encoder.mid_block.resnets.0"}) {
    EXPECT_EQ(LevelOf(name), CheckpointLevel::kAll) << name;
  }
}

TEST(CheckpointSelection, LevelsHoldTheShallowerOnes) {
  const CheckpointSelection blocks("blocks");
  EXPECT_TRUE(blocks.Contains("prompt_embeds"));
  EXPECT_TRUE(blocks.Contains("transformer/step000/transformer_blocks.3:img"));
  EXPECT_FALSE(blocks.Contains("transformer/step000/transformer_blocks.3:img_gate1"));
}

TEST(CheckpointSelection, GlobsAndLevelsAreUnited) {
  const CheckpointSelection selection("boundaries,*.attn.to_q,vae/decoder.conv_in");
  EXPECT_TRUE(selection.Contains("sigmas"));
  EXPECT_TRUE(selection.Contains("transformer/step000/transformer_blocks.3.attn.to_q"));
  EXPECT_TRUE(selection.Contains("vae/decoder.conv_in"));
  EXPECT_FALSE(selection.Contains("vae/decoder.conv_out"));
  EXPECT_FALSE(CheckpointSelection("*.attn.to_q").Contains("sigmas"));
}

TEST(CheckpointSelection, LargeTensorsAreRecordedByNameOnly) {
  const char* weights = "transformer/step000/transformer_blocks.3:attn_weights";
  EXPECT_FALSE(CheckpointSelection("all").Contains(weights));
  EXPECT_FALSE(CheckpointSelection("*").Contains(weights));
  EXPECT_TRUE(CheckpointSelection("blocks,*blocks.3:attn_weights").Contains(weights));
  EXPECT_FALSE(CheckpointSelection("*blocks.2:attn_weights").Contains(weights));
}

TEST(CheckpointSelection, UnknownWordsAreRefused) {
  for (const char* text : {"deep", "", "blocks,", "All"})
    EXPECT_THROW(CheckpointSelection{text}, Error) << text;
}

}  // namespace
}  // namespace qwen_image::record
