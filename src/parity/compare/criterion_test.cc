#include "parity/compare/criterion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "parity/compare/tensor.h"

namespace qwen_image::compare {
namespace {

using Kind = Criterion::Kind;

TensorComparison CompareValues(const std::vector<float>& ref, const std::vector<float>& run,
                               const Criterion& c) {
  const Shape shape = {static_cast<int64_t>(ref.size())};
  return CompareTensor("x", SourceOf(ref.data(), shape), SourceOf(run.data(), shape),
                       [&](const TensorStats&) { return c; });
}

const Criterion kGenerous[] = {{.kind = Kind::kMaxAbs, .limit = 1e30},
                               {.kind = Kind::kMaxRel, .limit = 1e30},
                               {.kind = Kind::kNmse, .limit = 1e30},
                               {.kind = Kind::kAllClose, .atol = 1e30, .rtol = 1},
                               {.kind = Kind::kFloor, .factor = 1e15, .floor = 1}};

TEST(Judge, NanAndOneSidedInfinityFailEverything) {
  for (const Criterion& c : kGenerous) {
    EXPECT_TRUE(CompareValues({1, 2}, {1, 3}, c).passed) << NameOf(c.kind);
    EXPECT_FALSE(CompareValues({1, 2}, {1, NAN}, c).passed) << NameOf(c.kind);
    EXPECT_FALSE(CompareValues({1, NAN}, {1, 2}, c).passed) << NameOf(c.kind);
    EXPECT_FALSE(CompareValues({1, NAN}, {1, NAN}, c).passed) << NameOf(c.kind);
    EXPECT_FALSE(CompareValues({1, 2}, {1, INFINITY}, c).passed) << NameOf(c.kind);
    EXPECT_FALSE(CompareValues({1, INFINITY}, {1, -INFINITY}, c).passed) << NameOf(c.kind);
    EXPECT_TRUE(CompareValues({1, INFINITY}, {1, INFINITY}, c).passed) << NameOf(c.kind);
  }
}

TEST(Judge, EveryKindAtItsLimit) {
  const auto passes = [](const Criterion& c) { return CompareValues({4, -8}, {4, -8.5}, c).passed; };
  EXPECT_FALSE(passes({.kind = Kind::kExact}));
  EXPECT_TRUE(CompareValues({4, -8}, {4, -8}, {.kind = Kind::kExact}).passed);
  EXPECT_TRUE(passes({.kind = Kind::kMaxAbs, .limit = 0.5}));
  EXPECT_FALSE(passes({.kind = Kind::kMaxAbs, .limit = 0.49}));
  EXPECT_TRUE(passes({.kind = Kind::kMaxRel, .limit = 0.0625}));
  EXPECT_FALSE(passes({.kind = Kind::kMaxRel, .limit = 0.06}));
  EXPECT_TRUE(passes({.kind = Kind::kNmse, .limit = 0.25 / 80}));
  EXPECT_FALSE(passes({.kind = Kind::kNmse, .limit = 0.24 / 80}));
  EXPECT_TRUE(passes({.kind = Kind::kAllClose, .atol = 0.25, .rtol = 0.03125}));
  EXPECT_FALSE(passes({.kind = Kind::kAllClose, .atol = 0.24, .rtol = 0.03125}));
  EXPECT_TRUE(passes({.kind = Kind::kFloor, .factor = 2, .floor = 0.0625 / 80}));
  EXPECT_FALSE(passes({.kind = Kind::kFloor, .factor = 2, .floor = 0.06 / 80}));
}

// As numpy.allclose: what is equal passes also with tolerances of zero.
TEST(Judge, AllCloseWithZeroTolerances) {
  EXPECT_TRUE(CompareValues({0, 1}, {0, 1}, {.kind = Kind::kAllClose}).passed);
  EXPECT_FALSE(CompareValues({0, 1}, {1e-30f, 1}, {.kind = Kind::kAllClose}).passed);
}

TEST(LiveCriterion, FollowsTheDesign) {
  EXPECT_EQ(LiveCriterion("input_ids", ErrorMode::kAccumulated).kind, Kind::kExact);
  EXPECT_EQ(LiveCriterion("negative_prompt_embeds_mask", ErrorMode::kIsolated).kind, Kind::kExact);
  for (const char* name : {"position_ids", "negative_position_ids", "image_grid_thw", "mask_packed"})
    EXPECT_EQ(LiveCriterion(name, ErrorMode::kAccumulated).kind, Kind::kExact) << name;
  for (const char* name : {"pixel_values", "vae_image0", "vae_image12"}) {
    EXPECT_EQ(LiveCriterion(name, ErrorMode::kAccumulated).kind, Kind::kMaxAbs) << name;
    EXPECT_EQ(LiveCriterion(name, ErrorMode::kAccumulated).limit, 1e-5) << name;
  }
  EXPECT_EQ(LiveCriterion("transformer/step000/transformer_blocks.0.attn.to_q", ErrorMode::kIsolated).limit,
            1e-10);
  EXPECT_EQ(LiveCriterion("transformer/step000/transformer_blocks.0:img", ErrorMode::kIsolated).limit, 1e-8);
  EXPECT_EQ(LiveCriterion("final_latents_packed", ErrorMode::kAccumulated).limit, 1e-6);
  EXPECT_EQ(LiveCriterion("sigmas", ErrorMode::kAccumulated).limit, 1e-6);
  EXPECT_EQ(LiveCriterion("image", ErrorMode::kAccumulated).limit, 1.0 / 255);
}

TEST(RecordedCriterion, GivenTolerancesAreTakenLiterally) {
  const Criterion c = RecordedCriterion("x", {.max_ref = 1e6}, {.atol = 0.5});
  EXPECT_EQ(c.kind, Kind::kAllClose);
  EXPECT_EQ(c.atol, 0.5);
  EXPECT_EQ(c.rtol, 0);
  EXPECT_EQ(RecordedCriterion("prompt_embeds_mask", {}, {.atol = 0.5}).kind, Kind::kExact);
  EXPECT_EQ(RecordedCriterion("x", {.is_float = false}, {.atol = 0.5}).kind, Kind::kExact);
}

TEST(RecordedCriterion, TheFloorCountsAtLowPrecisionOnly) {
  EXPECT_EQ(RecordedCriterion("x", {.floor = 1e-4}, {}).kind, Kind::kAllClose);
  EXPECT_DOUBLE_EQ(RecordedCriterion("x", {.floor = 1e-4, .floor_max_abs = 0.5}, {}).atol, 1e-5 + 5e-4);
  EXPECT_EQ(RecordedCriterion("transformer/step000/time_text_embed.time_proj", {}, {}).limit, 1e-4);
  const Criterion c = RecordedCriterion("x", {.is_low = true, .floor = 1e-4}, {.floor_factor = 3});
  EXPECT_EQ(c.kind, Kind::kFloor);
  EXPECT_DOUBLE_EQ(LimitOf(c), 9e-4);
  EXPECT_GT(RecordedCriterion("x", {.is_low = true, .floor = 0}, {}).floor, 0);
  EXPECT_EQ(RecordedCriterion("sigmas", {.is_low = true, .floor = 1}, {}).kind, Kind::kMaxAbs);
}

TEST(RecordedCriterion, TheDefaultScalesWithTheTensor) {
  const Criterion small = RecordedCriterion("x", {.max_ref = 0.1}, {});
  EXPECT_EQ(small.atol, 1e-5);
  EXPECT_EQ(small.rtol, 1e-5);
  EXPECT_DOUBLE_EQ(RecordedCriterion("x", {.max_ref = 4.5e7}, {}).atol, 450);
  EXPECT_EQ(RecordedCriterion("x", {.is_low = true}, {}).atol, 1e-2);
}

TEST(Criterion, HoldsATensorToAnotherNmse) {
  TensorComparison tensor{.error = ErrorStats{.max_abs = 1, .nmse = 1e-4},
                          .criterion = {.kind = Criterion::Kind::kMaxAbs, .limit = 1e-6}};
  HoldToNmse(kRoundedBlockNmse, tensor);
  EXPECT_TRUE(tensor.passed);
  HoldToNmse(1e-5, tensor);
  EXPECT_FALSE(tensor.passed);
  tensor.criterion = {.kind = Criterion::Kind::kExact};  // ids are ids at any precision
  HoldToNmse(kRoundedBlockNmse, tensor);
  EXPECT_EQ(tensor.criterion.kind, Criterion::Kind::kExact);
  EXPECT_FALSE(tensor.passed);
}

}  // namespace
}  // namespace qwen_image::compare
