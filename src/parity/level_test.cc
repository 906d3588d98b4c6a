#include "parity/level.h"

#include <gtest/gtest.h>

#include "qwen_image/error.h"

namespace qwen_image {
namespace {

TEST(Level, BoundariesBlocksAndTheRest) {
  for (const char* name :
       {"input_ids", "prompt_embeds", "packed_latents_step3", "vae/pre_decode_latents", "image"}) {
    EXPECT_EQ(LevelOf(name), CheckpointLevel::kBoundaries) << name;
  }
  for (const char* name :
       {"text_encoder/model.language_model.layers.12", "text_encoder.neg/model.language_model.norm",
        "transformer/step000.neg/transformer_blocks.3:img", "transformer/step010/proj_out",
        "vae/decoder.up_blocks.1", "vae/post_quant_conv"}) {
    EXPECT_EQ(LevelOf(name), CheckpointLevel::kBlocks) << name;
  }
  for (const char* name : {"text_encoder/model.language_model.layers.0.mlp",
                           "transformer/step000/transformer_blocks.3:img_query_rope",
                           "transformer/step000/norm_out.linear", "vae/decoder.up_blocks.1.resnets.0"}) {
    EXPECT_EQ(LevelOf(name), CheckpointLevel::kAll) << name;
  }
}

TEST(Level, UnknownWordsAreRefused) {
  EXPECT_EQ(ParseCheckpointLevel("blocks"), CheckpointLevel::kBlocks);
  EXPECT_THROW(ParseCheckpointLevel("deep"), Error);
}

}  // namespace
}  // namespace qwen_image
