#include "parity/compare/bisect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "parity/record/level.h"

namespace qwen_image::compare {
namespace {

using ::testing::HasSubstr;

constexpr double kPass = 1e-14, kFail = 1e-2;

// A run of which is known which operations err by themselves and which only carry an error on.
struct FakeModel {
  std::vector<std::string> checkpoints;  // in order
  std::set<std::string> makers, carriers;
  int runs = 0;

  Comparison operator()(const BisectPlan& plan) {
    ++runs;
    Comparison comparison;
    const record::CheckpointSelection selection(plan.checkpoints);
    for (const std::string& name : checkpoints) {
      if (!selection.Contains(name)) continue;
      if (!plan.component.empty() && !name.starts_with(plan.component) && name.find('/') != name.npos)
        continue;
      const bool bad = makers.contains(name) || (!plan.isolated && carriers.contains(name));
      TensorComparison t;
      t.name = name;
      t.error.emplace();
      t.error->nmse = bad ? kFail : kPass;
      t.passed = !bad;
      comparison.tensors.push_back(t);
    }
    return comparison;
  }
};

std::string InStep0(const std::string& module) { return "transformer/step000/" + module; }

FakeModel TwoBlocks() {
  return {.checkpoints = {"input_ids", "prompt_embeds", "sigmas", "packed_latents_step0", InStep0("img_in"),
                          InStep0("transformer_blocks.0.attn.to_q"), InStep0("transformer_blocks.0:img"),
                          InStep0("transformer_blocks.1.attn.to_q"),
                          InStep0("transformer_blocks.1:attn_output"), InStep0("transformer_blocks.1:img"),
                          InStep0("transformer_blocks.10.attn.to_q"), InStep0("proj_out"), "noise_pred_step0",
                          "final_latents_packed", "vae/pre_decode_latents", "vae/decoder.conv_in", "image"},
          .makers = {},
          .carriers = {}};
}

TEST(Bisect, FindsTheOperationInsideTheBlock) {
  FakeModel model = TwoBlocks();
  model.makers = {InStep0("transformer_blocks.1:attn_output")};
  model.carriers = {InStep0("transformer_blocks.1:img"),
                    InStep0("transformer_blocks.10.attn.to_q"),
                    InStep0("proj_out"),
                    "noise_pred_step0",
                    "final_latents_packed",
                    "image"};
  const BisectResult result = Bisect(std::ref(model));
  EXPECT_EQ(result.culprit, InStep0("transformer_blocks.1:attn_output"));
  EXPECT_EQ(result.component, "transformer");
  EXPECT_EQ(result.step, 0);
  for (const BisectRow& row : result.rows)
    EXPECT_THAT(row.name, HasSubstr("transformer_blocks.1")) << "only the failing block is opened";
  for (const BisectRow& row : result.rows)
    EXPECT_EQ(row.name.find("blocks.10"), row.name.npos) << "block 10 is not inside block 1";
  const std::string text = BisectText(result);
  EXPECT_THAT(text, HasSubstr("attn_output makes the error"));
  EXPECT_THAT(text, HasSubstr("carries it"));
}

TEST(Bisect, SaysThatNothingDiverges) {
  FakeModel model = TwoBlocks();
  const BisectResult result = Bisect(std::ref(model));
  EXPECT_TRUE(result.first_bad.empty());
  EXPECT_THAT(result.conclusion, HasSubstr("no divergence"));
  EXPECT_EQ(model.runs, 1) << "a right run needs no search";
}

TEST(Bisect, StopsAtThePipelinesOwnArithmetic) {
  FakeModel model = TwoBlocks();
  model.makers = {"final_latents_packed"};
  model.carriers = {"vae/pre_decode_latents", "image"};
  const BisectResult result = Bisect(std::ref(model));
  EXPECT_EQ(result.culprit, "final_latents_packed");
  EXPECT_TRUE(result.component.empty());
}

TEST(Bisect, StaysAtTheLevelThatTheReferenceHolds) {
  FakeModel model = TwoBlocks();
  model.checkpoints = {"prompt_embeds", InStep0("transformer_blocks.0:img"),
                       InStep0("transformer_blocks.1:img"), "noise_pred_step0"};
  model.makers = {InStep0("transformer_blocks.1:img")};
  model.carriers = {"noise_pred_step0"};
  const BisectResult result = Bisect(std::ref(model));
  EXPECT_EQ(result.culprit, InStep0("transformer_blocks.1:img"));
  EXPECT_THAT(result.conclusion, HasSubstr("--checkpoints all"));
}

TEST(Bisect, NamesErrorsThatOnlyAddUp) {
  FakeModel model = TwoBlocks();
  model.carriers = {InStep0("transformer_blocks.1:attn_output"), InStep0("transformer_blocks.1:img"),
                    InStep0("proj_out"), "noise_pred_step0"};
  const BisectResult result = Bisect(std::ref(model));
  EXPECT_TRUE(result.culprit.empty());
  EXPECT_EQ(result.first_bad, InStep0("transformer_blocks.1:attn_output"));
  EXPECT_THAT(result.conclusion, HasSubstr("small errors add up"));
}

TEST(Bisect, SuspectsTheWeightsWhenMostOperationsErr) {
  FakeModel model = TwoBlocks();
  model.makers = {InStep0("transformer_blocks.0.attn.to_q"), InStep0("transformer_blocks.0:img"),
                  InStep0("transformer_blocks.0.attn.to_k"), "noise_pred_step0"};
  model.checkpoints.insert(model.checkpoints.begin() + 6, InStep0("transformer_blocks.0.attn.to_k"));
  EXPECT_THAT(Bisect(std::ref(model)).conclusion, HasSubstr("other weights"));
}

TEST(Bisect, ReportsAnEmptyComparison) {
  FakeModel model;
  EXPECT_THAT(Bisect(std::ref(model)).conclusion, HasSubstr("nothing could be compared"));
}

}  // namespace
}  // namespace qwen_image::compare
