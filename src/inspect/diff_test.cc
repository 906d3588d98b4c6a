#include "inspect/diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "inspect/testing.h"

namespace qwen_image::inspect {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

WeightDiff Diff(const fs::path& a, const fs::path& b) {
  ThreadPool pool(2);
  const CancelFlag cancel;
  return DiffWeights(a, b, {}, {pool, cancel, {}});
}

class DiffMade : public testing::Test {
 protected:
  WeightDiff Diff(const MadeTensors& a, const MadeTensors& b) const {
    return inspect::Diff(folder_.Write("a.safetensors", WeightsBytes(a)),
                         folder_.Write("b.safetensors", WeightsBytes(b)));
  }
  const TempFolder folder_;
};

TEST_F(DiffMade, EqualWeights) {
  const WeightDiff diff = Diff(GoodBlocks(2), GoodBlocks(2));
  EXPECT_TRUE(diff.Equal(0));
  ASSERT_THAT(diff.components, SizeIs(1));
  EXPECT_EQ(diff.components[0].identical(), 10u);
  EXPECT_THAT(diff.components[0].Roles(), IsEmpty());
}

TEST_F(DiffMade, FiguresOfADifference) {
  const WeightDiff diff = Diff({{"a", Floats({4}, {3, 4, 0, 0})}, {"b", Constant({2}, 1)}},
                               {{"a", Floats({4}, {3, 4, 0.5, 0})}, {"b", Constant({2}, 1)}});
  EXPECT_FALSE(diff.Equal(0));
  EXPECT_FALSE(diff.Equal(0.09));
  EXPECT_TRUE(diff.Equal(0.11));
  const TensorDifference& a = diff.components.at(0).tensors.at(0);  // the largest error first
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.max_abs, 0.5);
  EXPECT_EQ(a.nmse, 0.01);
  EXPECT_EQ(a.relative(), 0.1);
  EXPECT_NEAR(a.cosine, 5 / std::sqrt(25.25), 1e-15);
  EXPECT_EQ(a.worst, 2);
  EXPECT_EQ(a.worst_b, 0.5);
  EXPECT_TRUE(diff.components[0].tensors[1].identical());
}

TEST_F(DiffMade, NamesShapesAndTypes) {
  MadeTensors a = GoodBlocks(1), b = GoodBlocks(1);
  a["only.a"] = b["only.b"] = Constant({1}, 1);
  b["blocks.0.norm.weight"].shape = {4, 4};
  a["x"] = Floats({2}, {1, 2});
  b["x"] = {"BF16", {2}, LittleEndian(0x3f80, 2) + LittleEndian(0x4000, 2)};
  const WeightDiff diff = Diff(a, b);
  const ComponentDiff& component = diff.components.at(0);
  EXPECT_THAT(component.only_in_a, ElementsAre("only.a"));
  EXPECT_THAT(component.only_in_b, ElementsAre("only.b"));
  EXPECT_EQ(component.tensors[0].name, "blocks.0.norm.weight");
  EXPECT_THAT(component.tensors[0].problem, HasSubstr("shape [16] against [4, 4]"));
  EXPECT_FALSE(diff.Equal(1));
}

TEST_F(DiffMade, AnotherTypeWithTheSameValues) {
  const WeightDiff diff = Diff({{"x", Floats({2}, {1, 2})}},
                               {{"x", {"BF16", {2}, LittleEndian(0x3f80, 2) + LittleEndian(0x4000, 2)}}});
  EXPECT_TRUE(diff.components.at(0).tensors.at(0).identical());
  EXPECT_FALSE(diff.Equal(0)) << "the files are not the same";
  EXPECT_TRUE(diff.Equal(1e-9)) << "their values are";
}

TEST_F(DiffMade, NanOnOneSideNeverPasses) {
  const float nan = std::nanf("");
  const WeightDiff one = Diff({{"a", Floats({3}, {1, 2, 3})}}, {{"a", Floats({3}, {1, nan, 100})}});
  EXPECT_FALSE(one.Equal(1e9));
  EXPECT_TRUE(std::isnan(one.components.at(0).tensors.at(0).nmse));
  EXPECT_EQ(one.components[0].tensors[0].worst, 1);
  const WeightDiff both = Diff({{"a", Floats({3}, {1, nan, 3})}}, {{"a", Floats({3}, {1, nan, 3})}});
  EXPECT_TRUE(both.Equal(0)) << "in the same place it is no difference";
}

TEST_F(DiffMade, RolesSumUpBlocks) {
  MadeTensors b = GoodBlocks(3);
  b["blocks.0.attn.to_q.weight"] = Random({16, 16}, 500);
  b["blocks.2.attn.to_q.weight"] = Random({16, 16}, 501);
  b["blocks.1.norm.weight"] = Constant({16}, 0);
  const WeightDiff diff = Diff(GoodBlocks(3), b);
  const std::vector<RoleDifference> roles = diff.components.at(0).Roles();
  ASSERT_THAT(roles, SizeIs(2));
  EXPECT_EQ(roles[0].name, "blocks.{0,2}.attn.to_q.weight");
  EXPECT_EQ(roles[0].tensors, 2u);
  EXPECT_NEAR(roles[0].max_relative, std::sqrt(2), 0.2) << "independent values are √2 apart";
  EXPECT_EQ(roles[1].max_relative, 1);
}

TEST(DiffQuantized, FloatAgainstWhatMlxMadeOfIt) {
  const fs::path goldens = fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/mlx";
  const WeightDiff diff = Diff(goldens / "float.safetensors", goldens / "quantized.safetensors");
  const ComponentDiff& component = diff.components.at(0);
  EXPECT_THAT(component.only_in_a, IsEmpty());
  EXPECT_THAT(component.only_in_b, IsEmpty()) << "scales and biases belong to their weights";
  EXPECT_EQ(component.identical(), 3u) << "the layers' biases";
  std::map<std::string, double> error;
  for (const TensorDifference& d : component.tensors) error[d.format_b] = d.relative();
  // A step is range / (2^bits − 1), its error uniform: step / √12. The range of 64 normal values is about 4.7
  // σ.
  EXPECT_NEAR(error["4-bit g64"], 4.7 / 15 / std::sqrt(12), 0.02);
  EXPECT_LT(error["8-bit g32"], 0.01);
  EXPECT_GT(error["2-bit g128"], 0.3);
  EXPECT_TRUE(diff.Equal(0.8));
  EXPECT_FALSE(diff.Equal(0.05));
}

// The shapes of packed weights with few values can be read in three ways; the other side's shape decides.
TEST_F(DiffMade, TheOtherShapeDecidesHowPackedValuesAreRead) {
  MadeTensors packed = {{"a.weight", {"U32", {2, 8}, std::string(64, '\x00')}},
                        {"a.scales", Constant({2, 1}, 1)},
                        {"a.biases", Constant({2, 1}, 0.5)}};
  const WeightDiff diff = Diff(packed, {{"a.weight", Constant({2, 32}, 0.5)}});
  const TensorDifference& a = diff.components.at(0).tensors.at(0);
  EXPECT_EQ(a.format_a, "8-bit g32");
  EXPECT_TRUE(a.identical());
  const WeightDiff wrong = Diff(packed, {{"a.weight", Constant({2, 33}, 0.5)}});
  EXPECT_THAT(wrong.components.at(0).tensors.at(0).problem, HasSubstr("A cannot be turned into numbers"));
}

TEST_F(DiffMade, PackedWeightsWhosePartsDoNotFitAreNotCompared) {
  const WeightDiff diff = Diff({{"a.weight", {"U32", {2, 8}, std::string(64, '\x00')}},
                                {"a.scales", Constant({2, 1}, 1)},
                                {"a.biases", Constant({2, 2}, 0.5)}},
                               {{"a.weight", Constant({2, 32}, 0.5)}});
  EXPECT_THAT(diff.components.at(0).tensors.at(0).problem, HasSubstr("A cannot be turned into numbers"));
  EXPECT_THAT(diff.broken, SizeIs(1));
  EXPECT_FALSE(diff.Equal(100));
}

TEST(DiffModels, APartAgainstAWholeModel) {
  const fs::path tiny = fs::path(QWEN_IMAGE_SOURCE_DIR) / "models/tiny";
  EXPECT_TRUE(Diff(tiny, tiny).Equal(0));
  const WeightDiff part = Diff(tiny / "vae/diffusion_pytorch_model.safetensors", tiny);
  ASSERT_THAT(part.components, SizeIs(1));
  EXPECT_EQ(part.components[0].name_b, "vae");
  EXPECT_TRUE(part.Equal(0));
}

TEST(DiffFolders, ConfigsThatDifferAreListed) {
  const TempFolder a, b;
  for (const TempFolder* folder : {&a, &b}) {
    folder->Write("model_index.json", R"({"vae": ["diffusers", "X"], "scheduler": ["diffusers", "Y"]})");
    folder->Write("vae/model.safetensors", WeightsBytes(GoodBlocks(2)));
  }
  a.Write("vae/config.json", R"({"z_dim": 16, "num_res_blocks": 2})");
  b.Write("vae/config.json", R"({ "num_res_blocks": 2, "z_dim": 16 })");
  EXPECT_TRUE(Diff(a.path(), b.path()).Equal(0));
  EXPECT_THAT(Diff(a.path(), b.path()).configs, IsEmpty());

  b.Write("vae/config.json", R"({"z_dim": 16, "num_res_blocks": 3, "extra": 1})");
  a.Write("scheduler/scheduler_config.json", R"({"shift": 1})");
  const WeightDiff diff = Diff(a.path(), b.path());
  EXPECT_FALSE(diff.Equal(0));
  EXPECT_TRUE(diff.Equal(0.1)) << "a tolerance is for other types, which configs tell of";
  ASSERT_THAT(diff.configs, SizeIs(2));
  EXPECT_EQ(diff.configs[0].file, "scheduler/scheduler_config.json");
  EXPECT_EQ(diff.configs[0].text, "only in A");
  EXPECT_EQ(diff.configs[1].file, "vae/config.json");
  EXPECT_EQ(diff.configs[1].text, "extra, num_res_blocks");

  const WeightDiff part = Diff(a.path() / "vae", b.path());  // a component and a model
  ASSERT_THAT(part.configs, SizeIs(1));
  EXPECT_EQ(part.configs[0].file, "config.json");
  b.Write("vae/config.json", "{");
  EXPECT_THAT(Diff(a.path() / "vae", b.path() / "vae").configs.at(0).text, HasSubstr("config.json"));
}

}  // namespace
}  // namespace qwen_image::inspect
