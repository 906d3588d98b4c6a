#include "parity/difference.h"

#include <gtest/gtest.h>

#include <cmath>

namespace qwen_image {
namespace {

TEST(Difference, MeasuresMaximumAndNmse) {
  const float got[] = {1.0f, 2.5f, -4.0f}, want[] = {1.0f, 2.0f, -4.0f};
  const Difference d = Compare(got, want, 3);
  EXPECT_DOUBLE_EQ(d.max_abs, 0.5);
  EXPECT_DOUBLE_EQ(d.nmse, 0.25 / 21);
  EXPECT_DOUBLE_EQ(d.max_rel, 0.125);
  EXPECT_EQ(d.worst, 1);
}

TEST(Difference, NanFailsEveryTolerance) {
  const float got[] = {1.0f, NAN}, want[] = {1.0f, 2.0f};
  const Difference d = Compare(got, want, 2);
  EXPECT_EQ(d.worst, 1);
  for (const auto measure :
       {Tolerance::Measure::kMaxAbs, Tolerance::Measure::kMaxRel, Tolerance::Measure::kNmse}) {
    EXPECT_FALSE((Tolerance{measure, 1e30}).Accepts(d));
  }
  const float infinite[] = {1.0f, INFINITY};
  EXPECT_FALSE((Tolerance{Tolerance::Measure::kNmse, 1e30}).Accepts(Compare(infinite, want, 2)));
}

TEST(Difference, SameNanAndInfinityInBothIsNone) {
  const float values[] = {NAN, INFINITY, 3.0f};
  EXPECT_EQ(Compare(values, values, 3).max_abs, 0);
}

TEST(Difference, IdsMustBeEqual) {
  const int64_t got[] = {7, 8}, want[] = {7, 9};
  const Tolerance exact = ToleranceOf("input_ids", ErrorMode::kAccumulated);
  EXPECT_FALSE(exact.Accepts(Compare(got, want, 2)));
  EXPECT_TRUE(exact.Accepts(Compare(want, want, 2)));
}

TEST(Difference, TolerancesFollowTheDesign) {
  EXPECT_EQ(ToleranceOf("transformer/step000/transformer_blocks.0.attn.to_q", ErrorMode::kIsolated).limit,
            1e-10);
  EXPECT_EQ(ToleranceOf("transformer/step000/transformer_blocks.0:img", ErrorMode::kIsolated).limit, 1e-8);
  EXPECT_EQ(ToleranceOf("final_latents_packed", ErrorMode::kAccumulated).limit, 1e-6);
  EXPECT_EQ(ToleranceOf("sigmas", ErrorMode::kAccumulated).limit, 1e-6);
}

}  // namespace
}  // namespace qwen_image
