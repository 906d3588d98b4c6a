// Hints about the schedule, on synthetic inputs.
#include <gtest/gtest.h>

#include <numbers>

#include "parity/hints/testing.h"

namespace qwen_image::hints {
namespace {

constexpr int64_t kSteps = 6;
constexpr double kShift = 2.5, kTerminal = 0.0213;

double Even(int64_t i) { return 1 - static_cast<double>(i) / kSteps; }

double Shifted(int64_t i) { return kShift / (kShift + 1 / Even(i) - 1); }

double Stretched(const std::function<double(int64_t)>& level, int64_t i) {
  return 1 - (1 - level(i)) * (1 - kTerminal) / (1 - level(kSteps - 1));
}

// The levels, and the 0 behind them.
HintTensor Levels(const std::function<double(int64_t)>& level) {
  return Changed(HintTensor{{kSteps + 1}, std::vector<float>(kSteps + 1)},
                 [&](int64_t i) { return i == kSteps ? 0 : level(i); });
}

double Right(int64_t i) { return Stretched(Shifted, i); }

TEST(ScheduleHints, KnowASchedulesParts) {
  const NamedTensors reference = {{"sigmas", Levels(Right)}};
  const auto kind_of = [&](const std::function<double(int64_t)>& level) {
    return FirstKind(HintsFor("sigmas", reference, Levels(level)));
  };
  EXPECT_EQ(kind_of(Even), "sigmas_not_shifted");
  EXPECT_EQ(kind_of([](int64_t i) { return Stretched(Even, i); }), "sigmas_not_shifted");
  EXPECT_EQ(kind_of(Shifted), "sigmas_not_stretched");
  // Another shift is none of these.
  EXPECT_EQ(kind_of([](int64_t i) { return Stretched([](int64_t j) { return Even(j) * Even(j); }, i); }), "");
}

TEST(ScheduleHints, KnowRoundedTimes) {
  const auto times = [](double (*round)(double)) {
    return Changed(HintTensor{{kSteps}, std::vector<float>(kSteps)},
                   [&](int64_t i) { return round(1000 * Right(i)); });
  };
  const NamedTensors reference = {{"timesteps", times([](double t) { return t; })}};
  EXPECT_EQ(FirstKind(HintsFor("timesteps", reference, times(std::nearbyint))), "time_rounded");
  EXPECT_EQ(FirstKind(HintsFor("timesteps", reference, times(std::floor))), "time_rounded");
}

// `last`: what the exponent is divided by.
HintTensor Embedding(double time, double last) {
  constexpr int64_t kHalf = 32;
  return Changed(HintTensor{{1, 2 * kHalf}, std::vector<float>(2 * kHalf)}, [&](int64_t i) {
    const double angle = time * std::pow(10000.0, -static_cast<double>(i % kHalf) / last);
    return i < kHalf ? std::cos(angle) : std::sin(angle);
  });
}

TEST(ScheduleHints, KnowTheEmbeddingOfAnotherTime) {
  constexpr double kTime = 823.5625;
  const std::string name = "transformer/step001.neg/time_text_embed.time_proj";
  const NamedTensors reference = {{"timesteps", {{2}, {1000, kTime}}}, {name, Embedding(kTime, 32)}};
  const auto kind_of = [&](const HintTensor& run) { return FirstKind(HintsFor(name, reference, run)); };
  EXPECT_EQ(kind_of(Embedding(kTime / 1000, 32)), "time_not_scaled");
  EXPECT_EQ(kind_of(Embedding(824, 32)), "time_rounded");
  EXPECT_EQ(kind_of(Embedding(kTime, 31)), "time_frequencies");
  EXPECT_EQ(kind_of(Embedding(500, 32)), "");
}

}  // namespace
}  // namespace qwen_image::hints
