#include "team/measure.h"

#include <gtest/gtest.h>

namespace qwen_image::team {
namespace {

// 60 blocks of 1,024 tokens that are 3,072 wide: what docs/machines.md computes.
PassCost Pass(std::vector<double> seconds) {
  return {.seconds = std::move(seconds), .blocks = 60, .state = 1024.0 * 3072};
}
constexpr Network kNoCost{.latency = 0, .bytes_per_second = 1e30};

TEST(Predict, WithoutANetworkMachinesShareTheTime) {
  const StepCost guided = Predict(Pass({8, 8, 8, 8}), kNoCost, 4, true);
  EXPECT_DOUBLE_EQ(guided.alone, 16);
  EXPECT_DOUBLE_EQ(guided.sequence, 4);
  EXPECT_DOUBLE_EQ(guided.layers, 10) << "the second prompt follows the first through 4 machines";
  const StepCost plain = Predict(Pass({8, 8, 8, 8}), kNoCost, 4, false);
  EXPECT_DOUBLE_EQ(plain.alone, 8);
  EXPECT_DOUBLE_EQ(plain.sequence, 2);
  EXPECT_DOUBLE_EQ(plain.layers, 8);
}

TEST(Predict, AnOddNumberTakesBothPrompts) {
  EXPECT_DOUBLE_EQ(Predict(Pass({9, 9, 9}), kNoCost, 3, true).sequence, 6);
}

TEST(Predict, TheSlowestMachineDecides) {
  const StepCost cost = Predict(Pass({4, 10}), kNoCost, 2, true);
  EXPECT_DOUBLE_EQ(cost.alone, 8);
  EXPECT_DOUBLE_EQ(cost.sequence, 10) << "one machine alone is faster";
}

TEST(Predict, TheNetworkCostsWhatGoesOverIt) {
  const Network gigabit{.latency = 1e-4, .bytes_per_second = 1.25e8};
  // Two prompts, two machines: only a velocity goes over the network.
  EXPECT_DOUBLE_EQ(Predict(Pass({8, 8}), gigabit, 2, true).sequence, 8);
  // One prompt: a machine sends half of its half of four arrays, in each of 60 blocks.
  const double bytes = 60.0 * 4 * 4 * 1024 * 3072 / 4;
  EXPECT_NEAR(Predict(Pass({8, 8}), gigabit, 2, false).sequence, 4 + bytes / 1.25e8 + 60 * 2e-4, 1e-9);
  EXPECT_NEAR(Predict(Pass({8, 8}), gigabit, 2, false).layers, 8 + 4.0 * 1024 * 3072 / 1.25e8 + 1e-4, 1e-9);
}

}  // namespace
}  // namespace qwen_image::team
