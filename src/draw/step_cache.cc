#include "draw/step_cache.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <charconv>
#include <cmath>

#include "core/fail.h"

namespace qwen_image::draw {
namespace {

// In a kept state.
constexpr const char *kExpected = "step_cache.expected", *kComputedStep = "step_cache.computed_step",
                     *kReused = "step_cache.reused", *kRate = "step_cache.rate",
                     *kPrevious = "step_cache.previous", *kComputed = "step_cache.computed",
                     *kSlope = "step_cache.slope";

// A velocity that has not changed at all would else never be looked at again.
constexpr int64_t kMaxInARow = 3;

// In order and in double, so that no thread count and no restart changes the last bit.
double MeanSize(const Tensor& x) {
  double sum = 0;
  for (int64_t i = 0; i < x.size(); ++i) sum += std::abs(static_cast<double>(x[i]));
  return sum / static_cast<double>(x.size());
}

double MeanDistance(const Tensor& x, const Tensor& y) {
  double sum = 0;
  for (int64_t i = 0; i < x.size(); ++i)
    sum += std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
  return sum / static_cast<double>(x.size());
}

// As bits: comes back as it was.
std::string ToText(double value) { return fmt::format("{:016x}", std::bit_cast<uint64_t>(value)); }

double ToNumber(const StepCache::State& state, const char* key, double limit) {
  const auto found = state.numbers.find(key);
  double value = NAN;
  if (found != state.numbers.end()) {
    const std::string& text = found->second;
    uint64_t bits = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bits, 16);
    if (error == std::errc() && end == text.data() + text.size()) value = std::bit_cast<double>(bits);
  }
  if (!(value >= 0 && value <= limit))
    Fail(ErrorKind::kBadInput, "the state of the step cache has no number {} that is possible", key);
  return value;
}

}  // namespace

double StepCache::Distance(int64_t from, int64_t to) const {
  return std::abs(static_cast<double>(schedule_.sigmas[static_cast<size_t>(to)]) -
                  static_cast<double>(schedule_.sigmas[static_cast<size_t>(from)]));
}

bool StepCache::MayEstimate(int64_t step) {
  const bool last = step + 2 == static_cast<int64_t>(schedule_.sigmas.size());
  if (!on() || !rate_ || last || step - computed_step_ > kMaxInARow) return false;
  expected_ += *rate_ * Distance(step - 1, step);
  return expected_ < threshold_;
}

Tensor StepCache::Estimate(int64_t step) {
  const auto sigma = [&](int64_t i) { return schedule_.sigmas[static_cast<size_t>(i)]; };
  const float distance = sigma(step) - sigma(computed_step_);
  Tensor velocity(computed_.shape());
  for (int64_t i = 0; i < velocity.size(); ++i) velocity[i] = computed_[i] + distance * slope_[i];
  previous_ = velocity.Clone();
  ++reused_;
  return velocity;
}

void StepCache::Computed(int64_t step, const Tensor& velocity) {
  if (!on()) return;
  if (step > 0) {
    const double size = MeanSize(previous_);
    // A velocity of zero, or two equal noise levels: nothing can be foretold.
    rate_ = MeanDistance(velocity, previous_) / (size * Distance(step - 1, step));
    if (!std::isfinite(*rate_)) rate_.reset();
    const double distance = Distance(computed_step_, step);
    slope_ = Tensor(velocity.shape());
    for (int64_t i = 0; i < velocity.size(); ++i)
      slope_[i] = distance > 0 ? (computed_[i] - velocity[i]) / static_cast<float>(distance) : 0;
  }
  computed_ = velocity.Clone();
  computed_step_ = step;
  previous_ = velocity.Clone();
  expected_ = 0;
}

StepCache::State StepCache::Save() const {
  State state;
  if (!on()) return state;
  state.numbers = {{kExpected, ToText(expected_)},
                   {kComputedStep, ToText(static_cast<double>(computed_step_))},
                   {kReused, ToText(static_cast<double>(reused_))}};
  if (rate_) state.numbers[kRate] = ToText(*rate_);
  state.tensors.emplace(kPrevious, previous_.Clone());
  state.tensors.emplace(kComputed, computed_.Clone());
  Tensor slope = slope_.size() > 0 ? slope_.Clone() : Tensor(computed_.shape());
  if (slope_.size() == 0) std::fill_n(slope.data(), slope.size(), 0.0f);  // there is none after one step
  state.tensors.emplace(kSlope, std::move(slope));
  return state;
}

std::map<std::string, Shape> StepCache::StateShapes(const Shape& velocity) const {
  if (!on()) return {};
  return {{kPrevious, velocity}, {kComputed, velocity}, {kSlope, velocity}};
}

void StepCache::Restore(State state) {
  if (!on()) return;
  const auto steps = static_cast<double>(schedule_.timesteps.size());
  const double expected = ToNumber(state, kExpected, DBL_MAX);
  const double computed_step = ToNumber(state, kComputedStep, steps - 1);
  const double reused = ToNumber(state, kReused, steps);
  std::optional<double> rate;
  if (state.numbers.contains(kRate)) rate = ToNumber(state, kRate, DBL_MAX);
  expected_ = expected;
  computed_step_ = static_cast<int64_t>(computed_step);
  reused_ = static_cast<int64_t>(reused);
  rate_ = rate;
  previous_ = std::move(state.tensors.at(kPrevious));
  computed_ = std::move(state.tensors.at(kComputed));
  slope_ = std::move(state.tensors.at(kSlope));
}

}  // namespace qwen_image::draw
