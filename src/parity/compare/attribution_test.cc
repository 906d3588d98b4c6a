#include "parity/compare/attribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "families/qwen_image/vocabulary.h"

namespace qwen_image::compare {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

TensorComparison Tensor(const std::string& name, double nmse) {
  TensorComparison t{.name = name};
  t.ref.shape = t.run.shape = {1, 10};
  t.error = ErrorStats{.nmse = nmse};
  return t;
}

// Four blocks with three matrices each; `worse` is added to those whose name ends so.
Comparison Recorded(double nmse, const std::string& worse = "", double added = 0) {
  Comparison c;
  for (int step = 0; step < 2; ++step) {
    for (int block = 0; block < 4; ++block) {
      for (const char* module : {"attn.to_q", "img_mod.1", "img_mlp.net.2"}) {
        const std::string name = "transformer/step00" + std::to_string(step) + "/transformer_blocks." +
                                 std::to_string(block) + "." + module;
        c.tensors.push_back(Tensor(name, nmse + (!worse.empty() && name.ends_with(worse) ? added : 0)));
      }
    }
  }
  return c;
}

CheckpointRole Role(const char* checkpoint) { return RoleOf(kQwenImageCheckpointNames, checkpoint); }

TEST(RoleOf, KnowsBlocksAndMatrices) {
  const CheckpointRole q = Role("transformer/step003.neg/transformer_blocks.12.attn.add_q_proj");
  EXPECT_EQ(q.component, "transformer");
  EXPECT_EQ(q.blocks, "transformer_blocks");
  EXPECT_EQ(q.block, 12);
  EXPECT_EQ(q.role, "txt q");
  EXPECT_TRUE(q.is_matrix);
  EXPECT_EQ(Role("text_encoder/model.language_model.layers.3.mlp.down_proj").role, "FFN down");
  EXPECT_EQ(Role("transformer/step000/transformer_blocks.1.attn.norm_q").role, "norm");
  EXPECT_EQ(Role("transformer/step000/transformer_blocks.1:img").role, "other");
  EXPECT_EQ(Role("transformer/step000/transformer_blocks.1:img").block, 1);
  EXPECT_EQ(Role("transformer/step000/img_in").role, "in and out");
  EXPECT_EQ(Role("transformer/step000/img_in").block, -1);
  EXPECT_EQ(Role("transformer/step000/transformer_blocks.99999999999999999999.x").block, -1);
}

TEST(Attribution, SeparatesWeightsFromActivations) {
  const Comparison accumulated = Recorded(5e-4), isolated = Recorded(1e-4);
  const Attribution a = Attribute(&accumulated, &isolated);
  ASSERT_THAT(a.by_role, SizeIs(3));
  ASSERT_THAT(a.by_block, SizeIs(4));
  EXPECT_EQ(a.by_role[0].tensors, 8);
  EXPECT_DOUBLE_EQ(*a.by_role[0].accumulated, 5e-4);
  EXPECT_DOUBLE_EQ(*a.by_role[0].weights_only, 1e-4);
  EXPECT_DOUBLE_EQ(*a.by_role[0].carried, 4e-4);
}

TEST(Attribution, RecipeNamesTheRoleThatMakesTheError) {
  const Comparison isolated = Recorded(1e-6, "img_mod.1", 1e-3);
  const Attribution a = Attribute(nullptr, &isolated);
  ASSERT_THAT(a.recipe.keeps, SizeIs(1));
  EXPECT_EQ(a.recipe.keeps[0].globs, "transformer_blocks.*.img_mod.1");
  EXPECT_FALSE(a.by_role[0].accumulated);
  EXPECT_THAT(AttributionText(a), HasSubstr("at 8 bits"));
}

TEST(Attribution, OneWorseBlockIsNamedAlone) {
  const Comparison isolated = Recorded(1e-6, "transformer_blocks.3.attn.to_q", 1e-2);
  const Attribution a = Attribute(nullptr, &isolated);
  ASSERT_THAT(a.recipe.keeps, SizeIs(1));
  EXPECT_EQ(a.recipe.keeps[0].globs, "transformer_blocks.3.attn.to_q");
  EXPECT_GT(a.recipe.share, 0.99);
  EXPECT_EQ(AttributionJson(a)["recipe"][0]["keep"], "transformer_blocks.3.attn.to_q");
}

TEST(Attribution, GivesNoRecipeWhereNoneStandsOut) {
  const Comparison even = Recorded(1e-4);
  EXPECT_THAT(Attribute(nullptr, &even).recipe.advice, HasSubstr("spread evenly"));
  EXPECT_THAT(Attribute(&even, nullptr).recipe.advice, HasSubstr("--substitute"));
  const Comparison none = Recorded(0);
  EXPECT_THAT(Attribute(nullptr, &none).recipe.advice, HasSubstr("no weights-only error"));
}

TEST(Attribution, LeavesOutNan) {
  Comparison c = Recorded(1e-4);
  c.tensors[0].error->nmse = NAN;
  c.tensors[1].error.reset();
  const Attribution a = Attribute(&c, nullptr);
  EXPECT_EQ(a.left_out, 2);
  for (const AttributedError& row : a.by_role) EXPECT_DOUBLE_EQ(*row.accumulated, 1e-4);
}

TEST(Attribution, KnowsIsolatedRunsByTheirManifest) {
  EXPECT_TRUE(IsIsolatedRun({{"substituted", {"*"}}}));
  EXPECT_FALSE(IsIsolatedRun({{"substituted", {"vae/*"}}}));
  EXPECT_FALSE(IsIsolatedRun({{"substituted", "*"}}));
  EXPECT_FALSE(IsIsolatedRun(Json()));
}

}  // namespace
}  // namespace qwen_image::compare
