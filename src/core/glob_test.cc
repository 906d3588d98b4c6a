#include "core/glob.h"

#include <gtest/gtest.h>

namespace qwen_image {
namespace {

TEST(Glob, StarMatchesAnyText) {
  EXPECT_TRUE(MatchesGlob("model.visual.*", "model.visual.blocks.0.weight"));
  EXPECT_TRUE(MatchesGlob("*.time_conv.*", "decoder.up_blocks.0.upsamplers.0.time_conv.bias"));
  EXPECT_TRUE(MatchesGlob("*", ""));
  EXPECT_TRUE(MatchesGlob("a*b*c", "a-b-b-c"));
  EXPECT_FALSE(MatchesGlob("model.visual.*", "model.language_model.norm"));
  EXPECT_FALSE(MatchesGlob("a*b", "a-b-c"));
  EXPECT_FALSE(MatchesGlob("abc", "ab"));
  EXPECT_FALSE(MatchesGlob("", "a"));
}

}  // namespace
}  // namespace qwen_image
