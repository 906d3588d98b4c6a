#include "prove/blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "families/vocabulary.h"
#include "parity/compare/criterion.h"

namespace qwen_image::prove {
namespace {

const CheckpointNames& Names() { return *Vocabularies().front()->checkpoints; }

compare::TensorComparison Tensor(const std::string& name, double nmse) {
  compare::TensorComparison tensor{.name = name, .error = compare::ErrorStats{.max_abs = nmse, .nmse = nmse}};
  tensor.ref.mean = 3;
  tensor.ref.std = 4;
  tensor.ref.min = -2;
  tensor.ref.max = 10;
  compare::HoldToNmse(compare::kRoundedBlockNmse, tensor);
  return tensor;
}

const std::string kFirst = "transformer/step000/transformer_blocks.7:img",
                  kSecond = "transformer/step001/transformer_blocks.7:img";

TEST(Blocks, TheWorstOfAllStepsCounts) {
  Comparisons found;
  found.isolated.tensors = {Tensor(kFirst, 1e-6), Tensor(kSecond, 1e-5), Tensor("prompt_embeds", 1)};
  found.accumulated.tensors = {Tensor(kFirst, 1e-3), Tensor(kSecond, 1e-4), Tensor("noise_pred_step0", 0.5)};
  found.accumulated.tensors[1].ref.min = -20;
  const Json table = BlockTable(Names(), found, nullptr);
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(table[0], Json({{"block", 7},
                            {"stream", "img"},
                            {"isolated", 1e-5},
                            {"accumulated", 1e-3},
                            {"min", -20.0},
                            {"max", 10.0},
                            {"rms", 5.0},
                            {"nan", 0},
                            {"inf", 0},
                            {"unusual", false}}));
  EXPECT_EQ(StepTable(found.accumulated), Json::array({{{"step", 0}, {"nmse", 0.5}}}));
}

TEST(Blocks, NanIsTheWorst) {
  Comparisons found;
  found.isolated.tensors = {Tensor(kFirst, std::nan("")), Tensor(kSecond, 1e-5)};
  found.accumulated.tensors = {Tensor(kFirst, 1e-3)};
  found.accumulated.tensors[0].run.nan = 3;
  found.accumulated.tensors[0].ref.inf = 2;
  const Json row = BlockTable(Names(), found, nullptr).at(0);
  EXPECT_TRUE(std::isnan(row["isolated"].get<double>()));
  EXPECT_EQ(row["nan"], 3);
  EXPECT_EQ(row["inf"], 2);
  EXPECT_EQ(FirstBroken(found.accumulated), kFirst);
  EXPECT_EQ(FirstBroken({}), "");
  EXPECT_FALSE(found.isolated.passed());
}

TEST(Blocks, ValuesFarBeyondTheKnownRangeAreMarked) {
  Comparisons found;
  found.accumulated.tensors = {Tensor(kFirst, 0)};
  const auto unusual = [&](std::optional<ValueRange> (*known)(std::string_view)) {
    return BlockTable(Names(), found, known).at(0).value("unusual", false);
  };
  EXPECT_FALSE(unusual([](std::string_view) -> std::optional<ValueRange> { return ValueRange{-1, 2.5}; }));
  EXPECT_TRUE(unusual([](std::string_view) -> std::optional<ValueRange> { return ValueRange{-1, 2.4}; }));
}

TEST(Blocks, AVerdictNamesTheWorst) {
  compare::Comparison found;
  found.tensors = {Tensor("a", 1e-4), Tensor("b", 2e-3), Tensor("c", 1e-3)};
  const Json verdict = Verdict(found);
  EXPECT_FALSE(verdict["passed"].get<bool>());
  EXPECT_EQ(verdict["failed"], 1);
  EXPECT_EQ(verdict["first_failed"], "b");
  EXPECT_EQ(verdict["nearest_to_its_limit"]["name"], "b");
  EXPECT_FALSE(Identical(found));
  found.tensors = {Tensor("a", 0)};
  EXPECT_TRUE(Identical(found));
}

}  // namespace
}  // namespace qwen_image::prove
