#include "weights/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace qwen_image {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(WeightNames, RolesForgetNumbers) {
  EXPECT_EQ(RoleOf("transformer_blocks.12.attn.to_out.0.bias"), "transformer_blocks.{}.attn.to_out.{}.bias");
  EXPECT_EQ(RoleOf("norm1.weight"), "norm1.weight");
  EXPECT_EQ(RoleOf(""), "");
  EXPECT_EQ(RoleOf("a.12345678.b"), "a.12345678.b") << "no block has such a number";
}

TEST(WeightNames, RangesAreShort) {
  EXPECT_EQ(RangeText({0, 1, 2, 3}), "0…3");
  EXPECT_EQ(RangeText({0, 1, 4, 6, 7, 8}), "0,1,4,6…8");
  EXPECT_EQ(RangeText({}), "");
}

TEST(WeightNames, FoldsTheNumbersThatDiffer) {
  EXPECT_EQ(FoldedName({"blocks.0.to_out.0.bias", "blocks.1.to_out.0.bias", "blocks.2.to_out.0.bias"}),
            "blocks.{0…2}.to_out.0.bias");
  EXPECT_EQ(FoldedName({"a.1.b"}), "a.1.b");
}

TEST(WeightNames, AHostileNameIsSplitInFewParts) {
  EXPECT_EQ(SplitName(std::string(100000, '.')).size(), 32u);
}

TEST(WeightNames, NearestNamesShareMostParts) {
  const std::vector<std::string> there = {"model.diffusion_model.blocks.0.attn.to_q.weight",
                                          "model.diffusion_model.blocks.0.attn.to_k.weight", "other.weight"};
  EXPECT_THAT(NearestNames("blocks.0.attn.to_q.weight", there, 1), ElementsAre(there[0]));
  EXPECT_THAT(NearestNames("something.else.weight", there, 3), IsEmpty());
}

}  // namespace
}  // namespace qwen_image
