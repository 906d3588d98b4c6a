// Hypotheses about the noise levels, the times of the steps and their embedding.
#include <fmt/format.h>

#include <algorithm>
#include <numbers>

#include "parity/hints/search.h"
#include "parity/record/level.h"

namespace qwen_image::hints {
namespace {

// sigma[0] is 1, the last is 0; between them are the levels of the steps. So many tell something.
constexpr int64_t kFewestSteps = 3;

// The levels before any shift: from 1 down to 1 / steps.
double EvenLevel(int64_t i, int64_t steps) {
  return i == steps ? 0 : 1 - static_cast<double>(i) / static_cast<double>(steps);
}

bool TestSigmas(HintSearch& s) {
  const int64_t steps = s.count() - 1;
  if (steps < kFewestSteps || s.RefAt(steps) != 0) return false;
  const double stretch = (1 - s.RefAt(steps - 1)) / (1 - EvenLevel(steps - 1, steps));
  for (const double by : {1.0, stretch}) {
    const auto even = [&](int64_t i) { return i == steps ? 0 : 1 - by * (1 - EvenLevel(i, steps)); };
    const auto fit = s.Test(even);
    if (!fit) continue;
    s.Add(
        "sigmas_not_shifted", *fit,
        "The levels are evenly spaced: the shift is missing (use_dynamic_shifting, whose mu follows from the "
        "number of the picture's tokens).");
    return true;
  }
  double along = 0, square = 0;
  for (int64_t i = 0; i < steps; ++i) {
    along += (1 - s.RunAt(i)) * (1 - s.RefAt(i));
    square += (1 - s.RefAt(i)) * (1 - s.RefAt(i));
  }
  if (!(square > 0)) return false;
  const double factor = along / square;
  const auto stretched = [&](int64_t i) { return i == steps ? 0 : 1 - factor * (1 - s.RefAt(i)); };
  const auto fit = s.Test(stretched, {.fitted = 1});
  if (!fit) return false;
  s.Add("sigmas_not_stretched", *fit,
        fmt::format("The levels end at {:.4g} before the 0 instead of {:.4g}: look at shift_terminal, which "
                    "stretches them.",
                    s.RunAt(steps - 1), s.RefAt(steps - 1)));
  return true;
}

struct Rounding {
  const char* how;
  double (*round)(double);
};
constexpr Rounding kRoundings[] = {{"rounded to whole numbers", [](double t) { return std::nearbyint(t); }},
                                   {"cut off to whole numbers", [](double t) { return std::floor(t); }}};

bool TestTimesteps(HintSearch& s) {
  for (const Rounding& rounding : kRoundings) {
    const auto fit = s.Test([&](int64_t i) { return rounding.round(s.RefAt(i)); });
    if (!fit) continue;
    s.Add("time_rounded", *fit,
          fmt::format("The times are {}; they are 1000 · sigma, with all their digits.", rounding.how));
    return true;
  }
  return false;
}

// [cosines, sines] of a time, of the first row; the second, where there is one, is of time 0.
struct TimeEmbedding {
  int64_t half = 0, last = 0;  // cosines; what the exponent of the frequencies is divided by

  double operator()(double time, int64_t i) const {
    if (i >= 2 * half) return kNoOpinion;
    const double frequency = std::pow(10000.0, -static_cast<double>(i % half) / static_cast<double>(last));
    return std::cos(time * frequency - (i < half ? 0 : std::numbers::pi / 2));
  }
};

bool TestTimeProjection(HintSearch& s) {
  const size_t at = s.name().find("/step");
  const auto times = s.context().ref("timesteps");
  if (at == std::string::npos || !times) return false;
  const std::string digits = s.name().substr(at + 1, s.name().find_first_of("./", at + 1) - at - 1);
  const auto step = record::NumberAfter(digits, "step");
  if (!step || *step >= static_cast<int64_t>(times->values.size())) return false;
  const double time = times->values[static_cast<size_t>(*step)];
  const int64_t half = s.ref().shape.back() / 2;
  const TimeEmbedding right{half, half};
  if (half < 2 || !s.ExplainsReference([&](int64_t i) { return right(time, i); })) return false;
  if (const auto fit = s.Test([&](int64_t i) { return right(time / 1000, i); })) {
    s.Add("time_not_scaled", *fit,
          fmt::format("The embedding is that of {:.4g}: the time goes from 0 to 1000, not from 0 to 1.",
                      time / 1000));
    return true;
  }
  for (const Rounding& rounding : kRoundings) {
    const auto fit = s.Test([&](int64_t i) { return right(rounding.round(time), i); });
    if (!fit) continue;
    s.Add("time_rounded", *fit,
          fmt::format("The embedding is that of {:.6g}, {} from {:.6g}.", rounding.round(time), rounding.how,
                      time));
    return true;
  }
  const TimeEmbedding other{half, half - 1};
  const auto fit = s.Test([&](int64_t i) { return other(time, i); });
  if (!fit) return false;
  s.Add("time_frequencies", *fit,
        "The exponent of the frequencies is divided by one less than their number (downscale_freq_shift 1; "
        "here it is 0).");
  return true;
}

}  // namespace

bool TestScheduleHints(HintSearch& s) {
  if (s.name() == "sigmas") return TestSigmas(s);
  if (s.name() == "timesteps") return TestTimesteps(s);
  const std::string_view projection = s.family().time_projection;
  return !projection.empty() && s.name().ends_with(projection) && TestTimeProjection(s);
}

}  // namespace qwen_image::hints
