#include "draw/step_cache.h"

#include <gtest/gtest.h>

#include <functional>

#include "files/testing.h"

namespace qwen_image::draw {
namespace {

constexpr int64_t kSteps = 20;

Schedule EvenSchedule() {
  Schedule schedule;
  for (int64_t i = 0; i <= kSteps; ++i) schedule.sigmas.push_back(1 - static_cast<float>(i) / kSteps);
  for (int64_t i = 0; i < kSteps; ++i)
    schedule.timesteps.push_back(1000 * schedule.sigmas[static_cast<size_t>(i)]);
  return schedule;
}

// A velocity of three values as a function of sigma.
using Velocity = std::function<float(float sigma, int64_t channel)>;

Tensor VelocityAt(const Velocity& velocity, const Schedule& schedule, int64_t step) {
  Tensor v({1, 1, 3});
  for (int64_t c = 0; c < 3; ++c) v[c] = velocity(schedule.sigmas[static_cast<size_t>(step)], c);
  return v;
}

struct Walk {
  std::vector<int64_t> computed;
  std::vector<float> used;  // all velocities, one after another
};

void Continue(StepCache& cache, const Schedule& schedule, const Velocity& velocity, int64_t from, int64_t to,
              Walk& walk) {
  for (int64_t step = from; step < to; ++step) {
    const Tensor v = cache.Velocity(step, [&] {
      walk.computed.push_back(step);
      return VelocityAt(velocity, schedule, step);
    });
    walk.used.insert(walk.used.end(), v.data(), v.data() + v.size());
  }
}

Walk WalkThrough(double threshold, const Velocity& velocity) {
  const Schedule schedule = EvenSchedule();
  StepCache cache(threshold, schedule);
  Walk walk;
  Continue(cache, schedule, velocity, 0, kSteps, walk);
  EXPECT_EQ(cache.reused(), kSteps - static_cast<int64_t>(walk.computed.size()));
  return walk;
}

const Velocity kLine = [](float sigma, int64_t c) { return 1 + static_cast<float>(c) + 0.5f * sigma; };
const Velocity kCurve = [](float sigma, int64_t c) { return 1 + static_cast<float>(c) + sigma * sigma; };

TEST(StepCache, OffComputesEveryStep) { EXPECT_EQ(WalkThrough(0, kLine).computed.size(), 20u); }

TEST(StepCache, AlwaysComputesTheFirstTwoStepsTheLastAndOneInFour) {
  EXPECT_EQ(WalkThrough(1, kLine).computed, (std::vector<int64_t>{0, 1, 5, 9, 13, 17, 19}));
}

TEST(StepCache, ComputesMoreStepsTheLowerTheThreshold) {
  size_t before = 7;
  for (const double threshold : {0.4, 0.1, 0.03, 0.001}) {
    const size_t computed = WalkThrough(threshold, kCurve).computed.size();
    EXPECT_GE(computed, before);
    before = computed;
  }
  EXPECT_EQ(before, 20u);
}

TEST(StepCache, AFastChangeIsComputed) {
  const Velocity jump = [](float sigma, int64_t) { return sigma > 0.5f ? 1.0f : 1 + 8 * (0.5f - sigma); };
  const std::vector<int64_t> computed = WalkThrough(0.1, jump).computed;
  int64_t late = 0;
  for (const int64_t step : computed) late += step > 10;
  EXPECT_GE(late, 6) << "of the 9 steps in which the velocity changes by 40 % of its first value each";
}

TEST(StepCache, ALineIsContinuedExactly) {
  const Schedule schedule = EvenSchedule();
  const Walk walk = WalkThrough(0.5, kLine);
  ASSERT_LT(walk.computed.size(), 10u);
  for (int64_t step = 0; step < kSteps; ++step) {
    const Tensor exact = VelocityAt(kLine, schedule, step);
    for (int64_t c = 0; c < 3; ++c)
      EXPECT_NEAR(walk.used[static_cast<size_t>(3 * step + c)], exact[c], 1e-5f);
  }
}

TEST(StepCache, GoesOnFromAKeptStateBitForBit) {
  const Schedule schedule = EvenSchedule();
  const Walk whole = WalkThrough(0.08, kCurve);
  ASSERT_GT(whole.computed.size(), 4u);
  ASSERT_LT(whole.computed.size(), 16u);
  for (int64_t stop = 1; stop < kSteps; ++stop) {
    Walk walk;
    StepCache first(0.08, schedule), second(0.08, schedule);
    Continue(first, schedule, kCurve, 0, stop, walk);
    StepCache::State state = first.Save();
    std::map<std::string, Shape> shapes;
    for (const auto& [name, tensor] : state.tensors) shapes[name] = tensor.shape();
    EXPECT_EQ(shapes, first.StateShapes({1, 1, 3}));
    second.Restore(std::move(state));
    Continue(second, schedule, kCurve, stop, kSteps, walk);
    EXPECT_EQ(walk.computed, whole.computed) << stop;
    EXPECT_EQ(walk.used, whole.used) << stop;
    EXPECT_EQ(second.reused(), kSteps - static_cast<int64_t>(whole.computed.size()));
  }
}

TEST(StepCache, ImpossibleStatesAreRefused) {
  const Schedule schedule = EvenSchedule();
  StepCache cache(0.1, schedule);
  Walk walk;
  Continue(cache, schedule, kCurve, 0, 5, walk);
  for (const char* key :
       {"step_cache.expected", "step_cache.computed_step", "step_cache.reused", "step_cache.rate"}) {
    for (const char* value : {"", "x", "nan", "-0x1p+0", "inf", "0x1p+2000"}) {
      StepCache::State state = cache.Save();
      ASSERT_TRUE(state.numbers.contains(key));
      state.numbers[key] = value;
      MessageOf(ErrorKind::kBadInput, [&] { StepCache(0.1, schedule).Restore(std::move(state)); });
    }
  }
  StepCache::State state = cache.Save();
  state.numbers["step_cache.computed_step"] = "0x1.4p+4";  // 20
  MessageOf(ErrorKind::kBadInput, [&] { StepCache(0.1, schedule).Restore(std::move(state)); });
}

}  // namespace
}  // namespace qwen_image::draw
