#include "convert/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convert/testing.h"
#include "core/fail.h"
#include "files/safetensors.h"
#include "files/testing.h"

namespace qwen_image::convert {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const fs::path kTiny = fs::path(QWEN_IMAGE_SOURCE_DIR) / "models/tiny";
constexpr int64_t kOneShard = 5'000'000'000;

ComponentPlan PlanOf(const fs::path& path, Component component, const std::string& to, int group_size = 64,
                     const std::vector<std::string>& rule_texts = {}, int64_t shard = kOneShard) {
  std::vector<EncodingRule> parsed;
  for (const std::string& text : rule_texts) parsed.push_back(ParseEncodingRule(text));
  EncodingRules rules(ParseTarget(to), group_size, parsed);
  ComponentPlan plan = PlanComponent(component, WeightStore(path, component), rules, shard);
  rules.CheckAllUsed();
  return plan;
}

const TensorPlan& Find(const ComponentPlan& plan, const std::string& name) {
  for (const ShardPlan& shard : plan.shards) {
    for (const TensorPlan& tensor : shard.tensors) {
      if (tensor.name == name) return tensor;
    }
  }
  throw std::runtime_error("no " + name);
}

std::string To(const ComponentPlan& plan, const std::string& name) {
  return Find(plan, name).choice.encoding.Name();
}

TEST(ConversionPlan, FourBitsWhereItDoesNotHurt) {
  const ComponentPlan plan = PlanOf(kTiny / "transformer", Component::kTransformer, "q4");
  const std::string block = "transformer_blocks.2.";
  for (const char* name : {"attn.to_q", "attn.to_out.0", "attn.add_k_proj", "attn.to_add_out",
                           "img_mlp.net.0.proj", "txt_mlp.net.2"}) {
    EXPECT_EQ(To(plan, block + name + ".weight"), "4-bit g64") << name;
    EXPECT_EQ(To(plan, block + name + ".bias"), "BF16") << name;
  }
  for (const std::string& name : {block + "img_mod.1", block + "txt_mod.1", std::string("norm_out.linear"),
                                  std::string("img_in"), std::string("txt_in"), std::string("proj_out"),
                                  std::string("time_text_embed.timestep_embedder.linear_2")}) {
    EXPECT_EQ(To(plan, name + ".weight"), "8-bit g64") << name;
  }
  for (const char* name : {"attn.norm_q", "attn.norm_k", "attn.norm_added_q", "attn.norm_added_k"}) {
    EXPECT_EQ(To(plan, block + name + ".weight"), "BF16") << name;
    EXPECT_EQ(Find(plan, block + name + ".weight").choice.role, "norm");
  }
  EXPECT_EQ(To(plan, "txt_norm.weight"), "BF16");
  EXPECT_EQ(plan.IndexName(), "");
  EXPECT_EQ(plan.shards.at(0).file, "diffusion_pytorch_model.safetensors");
}

TEST(ConversionPlan, TheTextEncoderAndTheVae) {
  const ComponentPlan text = PlanOf(kTiny / "text_encoder", Component::kTextEncoder, "q4", 32);
  EXPECT_EQ(To(text, "model.language_model.embed_tokens.weight"), "8-bit g32");
  EXPECT_EQ(To(text, "model.language_model.layers.1.mlp.down_proj.weight"), "4-bit g32");
  EXPECT_EQ(To(text, "model.language_model.layers.1.self_attn.q_proj.bias"), "BF16");
  EXPECT_EQ(To(text, "model.visual.patch_embed.proj.weight"), "BF16");  // a convolution
  EXPECT_EQ(text.shards.at(0).file, "model.safetensors");
  const ComponentPlan vae = PlanOf(kTiny / "vae", Component::kVae, "q4");
  for (const TensorPlan& tensor : vae.shards.at(0).tensors)
    EXPECT_EQ(tensor.choice.encoding.Name(), "BF16") << tensor.name;
  EXPECT_EQ(vae.Quantization(), Json());
  EXPECT_EQ(vae.shards[0].Metadata().at("format"), "pt");
  EXPECT_EQ(text.shards[0].Metadata().at("format"), "mlx");
  const ComponentPlan f32 = PlanOf(kTiny / "vae", Component::kVae, "f32");
  EXPECT_EQ(To(f32, "decoder.conv_in.weight"), "F32");
}

class OddModel : public testing::Test {
 protected:
  OddModel() {
    WriteSource(folder_.path() / "model.safetensors", {{"a.weight", DType::kF32, {2, 96}, {}},
                                                       {"b.weight", DType::kF32, {2, 48}, {}},
                                                       {"c.weight", DType::kF16, {2, 128}, {}},
                                                       {"c.bias", DType::kF16, {3}, {}},
                                                       {"d.weight", DType::kF32, {4, 128}, {}},
                                                       {"norm.weight", DType::kF32, {5}, {}}});
  }
  ComponentPlan Plan(const std::string& to, int group_size = 64, const std::vector<std::string>& rules = {},
                     int64_t shard = kOneShard) const {
    return PlanOf(folder_.path(), Component::kTransformer, to, group_size, rules, shard);
  }
  std::string Refused(const std::vector<std::string>& rules) const {
    return MessageOf(ErrorKind::kUsage, [&] { Plan("bf16", 64, rules); });
  }
  const TempFolder folder_;
};

TEST_F(OddModel, RowsThatTheGroupDoesNotDivide) {
  const ComponentPlan plan = Plan("q4", 128);
  EXPECT_EQ(To(plan, "a.weight"), "4-bit g32");
  EXPECT_EQ(Find(plan, "a.weight").choice.note,
            "groups of 32: rows of 96 values are not whole groups of 128");
  EXPECT_EQ(To(plan, "b.weight"), "F32");
  EXPECT_EQ(Find(plan, "b.weight").choice.note,
            "not quantized: rows of 48 values are not whole groups of 32, 64, 128");
  EXPECT_EQ(To(plan, "c.weight"), "4-bit g128");
  EXPECT_EQ(To(plan, "c.bias"), "F16");  // kept as it is
  EXPECT_EQ(To(plan, "norm.weight"), "F32");
  EXPECT_EQ(Find(plan, "c.weight").choice.note, "");
  EXPECT_EQ(plan.Quantization(),
            Json({{"bits", 4}, {"group_size", 128}, {"a", {{"bits", 4}, {"group_size", 32}}}}));
}

TEST_F(OddModel, NothingOfAVaeIsQuantized) {
  const ComponentPlan plan = PlanOf(folder_.path(), Component::kVae, "q4");
  EXPECT_EQ(To(plan, "d.weight"), "F32");
  EXPECT_EQ(To(plan, "c.weight"), "F16");
}

TEST_F(OddModel, TheLastRuleThatFitsCounts) {
  const ComponentPlan plan = Plan("q8", 32, {"*=q4", "c.*=keep", "transformer/d.*=f16", "*norm*=bf16"});
  EXPECT_EQ(To(plan, "a.weight"), "4-bit g32");
  EXPECT_EQ(To(plan, "c.weight"), "F16");
  EXPECT_EQ(To(plan, "d.weight"), "F16");
  EXPECT_EQ(To(plan, "norm.weight"), "BF16");
  EXPECT_EQ(To(plan, "c.bias"), "F16");  // "*=q4" is for what can be quantized
}

TEST_F(OddModel, RulesThatCannotBeMeant) {
  EXPECT_THAT(Refused({"x.*=q4"}), HasSubstr("the rule for \"x.*\" fits no tensor that can be quantized"));
  EXPECT_THAT(Refused({"vae/*=f32"}), HasSubstr("the rule for \"vae/*\" fits no tensor"));
  EXPECT_THAT(Refused({"*bias=q8"}), HasSubstr("that can be quantized"));
  EXPECT_THAT(Refused({"*=q7"}), AllOf(HasSubstr("there is no type \"q7\""), HasSubstr("q8, q6")));
  EXPECT_THAT(Refused({"q4"}), HasSubstr("write GLOB=TYPE"));
  EXPECT_THAT(Refused({"=q4"}), HasSubstr("write GLOB=TYPE"));
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { Plan("q4", 48); }), HasSubstr("a group of 48"));
}

TEST_F(OddModel, ShardsHoldWholeTensors) {
  const ComponentPlan plan = Plan("q4", 32, {}, 300);
  ASSERT_EQ(plan.shards.size(), 5u);
  EXPECT_EQ(plan.IndexName(), "diffusion_pytorch_model.safetensors.index.json");
  EXPECT_EQ(plan.shards[1].file, "diffusion_pytorch_model-00002-of-00005.safetensors");
  const Json index = plan.Index();
  EXPECT_EQ(index.at("weight_map").at("d.weight"), index.at("weight_map").at("d.scales"));
  EXPECT_EQ(index.at("weight_map").at("d.weight"), index.at("weight_map").at("d.biases"));
  int64_t total = 0;
  for (const ShardPlan& shard : plan.shards) {
    for (const PlannedTensor& stored : shard.Stored()) total += stored.bytes();
  }
  EXPECT_EQ(index.at("metadata").at("total_size"), total);
}

TEST_F(OddModel, EveryTensorIsAligned) {
  const ComponentPlan plan = Plan("q4", 32);
  ASSERT_EQ(plan.shards.size(), 1u);
  int64_t at = 0;
  for (const PlannedTensor& stored : plan.shards[0].Stored()) {
    EXPECT_EQ(at % static_cast<int64_t>(SizeOf(stored.dtype)), 0) << stored.name;
    at += stored.bytes();
  }
}

TEST(ConversionPlan, WhatIsPackedAlikeIsCopied) {
  const fs::path file = fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/mlx/quantized.safetensors";
  const ComponentPlan plan = PlanOf(file, Component::kTransformer, "q4");
  EXPECT_TRUE(Find(plan, "layers.0.proj.weight").copied);   // 4-bit g64
  EXPECT_FALSE(Find(plan, "layers.1.proj.weight").copied);  // 8-bit g32
  EXPECT_FALSE(Find(plan, "layers.0.proj.bias").copied);
  EXPECT_EQ(Find(plan, "layers.1.proj.weight").source, "8-bit g32");
}

TEST(ConversionPlan, WhatCannotBeReadIsRefused) {
  const TempFolder folder;
  folder.Write("model.safetensors",
               SafetensorsBytes(R"({"a.weight":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"));
  EXPECT_THAT(
      MessageOf(ErrorKind::kBadInput, [&] { PlanOf(folder.path(), Component::kTransformer, "bf16"); }),
      HasSubstr("\"a.weight\" has type U8"));
}

}  // namespace
}  // namespace qwen_image::convert
