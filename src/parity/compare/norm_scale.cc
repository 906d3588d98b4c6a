#include "parity/compare/norm_scale.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace qwen_image::compare {

std::optional<double> SystematicScale(const TensorSource& ref, const TensorSource& run) {
  constexpr double kLeast = 5e-7;  // rounding of fp32 moves a row by less than half of this
  constexpr double kShare = 0.8, kOneWay = 0.95;
  constexpr int64_t kFewRows = 4, kNarrow = 8, kWide = 65536;
  const int64_t width = ref.shape.empty() ? 0 : ref.shape.back();
  if (width < kNarrow || width > kWide || ref.count != run.count || ref.count / width < kFewRows) return {};
  std::vector<double> want(static_cast<size_t>(width)), got = want;
  double error = 0, explained = 0, energy = 0, along = 0;
  int64_t up = 0, down = 0;
  for (int64_t begin = 0; begin < ref.count; begin += width) {
    ref.read(begin, width, want.data());
    run.read(begin, width, got.data());
    double row_along = 0, row_energy = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const double difference = got[i] - want[i];
      error += difference * difference;
      row_along += difference * want[i];
      row_energy += want[i] * want[i];
    }
    if (!(row_energy > 0)) continue;
    explained += row_along * row_along / row_energy;
    energy += row_energy;
    along += row_along;
    ++(row_along > 0 ? up : down);
  }
  const bool one_way = static_cast<double>(std::max(up, down)) >= kOneWay * static_cast<double>(up + down);
  if (!(energy > 0) || !one_way || !(explained >= kShare * error)) return {};
  const double scale = along / energy;
  if (!(std::abs(scale) >= kLeast)) return {};
  return scale;
}

}  // namespace qwen_image::compare
