#include "image/alignment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "files/colour.h"
#include "image/plane.h"
#include "kernels/resize.h"

namespace qwen_image::image {
namespace {

// Where a point of one plane is in the other: centre + shift + (1 + scale) · (point - centre).
struct Warp {
  double shift_x = 0, shift_y = 0;
  double scale_x = 0, scale_y = 0;
};

double Middle(int64_t size) { return static_cast<double>(size - 1) / 2; }

Plane Warped(const Plane& plane, const Warp& warp) {
  Plane out = MakePlane(plane.width, plane.height);
  const double cx = Middle(plane.width), cy = Middle(plane.height);
  for (int64_t y = 0; y < plane.height; ++y) {
    for (int64_t x = 0; x < plane.width; ++x) {
      out.at(x, y) = Sample(plane, cx + warp.shift_x + (1 + warp.scale_x) * (static_cast<double>(x) - cx),
                            cy + warp.shift_y + (1 + warp.scale_y) * (static_cast<double>(y) - cy));
    }
  }
  return out;
}

// The scale, of a few, at which phase correlation finds the clearest shift.
Warp CoarseWarp(const Plane& a, const Plane& b) {
  constexpr std::array<double, 9> kScales = {0, 0.02, -0.02, 0.04, -0.04, 0.06, -0.06, 0.08, -0.08};
  Warp best;
  double highest = -1;
  for (const double scale : kScales) {
    const PhasePeak peak = PhaseCorrelation(a, Warped(b, {.scale_x = scale, .scale_y = scale}));
    if (peak.height > highest) {
      highest = peak.height;
      best = {peak.x * (1 + scale), peak.y * (1 + scale), scale, scale};
    }
  }
  return best;
}

constexpr size_t kUnknowns = 6;  // gain, offset, and a Warp
using Vector = std::array<double, kUnknowns>;

// Sums of the normal equations: symmetric, only i ≤ j is filled.
struct Equations {
  std::array<Vector, kUnknowns> matrix = {};
  Vector right = {};

  void Add(const Vector& row, double value, double weight) {
    for (size_t i = 0; i < kUnknowns; ++i) {
      for (size_t j = i; j < kUnknowns; ++j) matrix[i][j] += weight * row[i] * row[j];
      right[i] += weight * row[i] * value;
    }
  }
  // Cholesky's method; nothing if the pixels do not determine all unknowns.
  std::optional<Vector> Solve() const {
    constexpr double kSmallestPivot = 1e-6;  // of what it was before the others were taken away
    std::array<Vector, kUnknowns> l = {};
    Vector x = {};
    for (size_t j = 0; j < kUnknowns; ++j) {
      double pivot = matrix[j][j];
      for (size_t k = 0; k < j; ++k) pivot -= l[j][k] * l[j][k];
      if (!(pivot > kSmallestPivot * matrix[j][j])) return std::nullopt;
      l[j][j] = std::sqrt(pivot);
      for (size_t i = j + 1; i < kUnknowns; ++i) {
        double sum = matrix[j][i];
        for (size_t k = 0; k < j; ++k) sum -= l[i][k] * l[j][k];
        l[i][j] = sum / l[j][j];
      }
    }
    for (size_t i = 0; i < kUnknowns; ++i) {
      x[i] = right[i];
      for (size_t k = 0; k < i; ++k) x[i] -= l[i][k] * x[k];
      x[i] /= l[i][i];
    }
    for (size_t i = kUnknowns; i-- > 0;) {
      for (size_t k = i + 1; k < kUnknowns; ++k) x[i] -= l[k][i] * x[k];
      x[i] /= l[i][i];
    }
    return x;
  }
};

// A plane's value and slopes at a point.
struct Point {
  float value = 0, dx = 0, dy = 0;
};

// Two planes of one size, the second one with its slopes.
struct Pair {
  Plane a;
  std::vector<Point> b;  // [height, width]

  // Bilinear; (x, y) lies inside.
  Point At(double x, double y) const {
    const auto left = static_cast<int64_t>(x), top = static_cast<int64_t>(y);
    const auto fx = static_cast<float>(x - static_cast<double>(left)),
               fy = static_cast<float>(y - static_cast<double>(top));
    const Point* above = b.data() + top * a.width + left;
    const Point* below = above + a.width;
    const float w[] = {(1 - fx) * (1 - fy), fx * (1 - fy), (1 - fx) * fy, fx * fy};
    const auto mean = [&](float Point::*field) {
      return w[0] * above[0].*field + w[1] * above[1].*field + w[2] * below[0].*field +
             w[3] * below[1].*field;
    };
    return {mean(&Point::value), mean(&Point::dx), mean(&Point::dy)};
  }
};

Pair MakePair(const Plane& a, const Plane& b, double blur) {
  const Plane plane = Blurred(b, blur);
  Pair pair{Blurred(a, blur), std::vector<Point>(b.values.size())};
  for (int64_t y = 1; y + 1 < b.height; ++y) {
    for (int64_t x = 1; x + 1 < b.width; ++x) {
      pair.b[static_cast<size_t>(y * b.width + x)] = {plane.at(x, y),
                                                      (plane.at(x + 1, y) - plane.at(x - 1, y)) / 2,
                                                      (plane.at(x, y + 1) - plane.at(x, y - 1)) / 2};
    }
  }
  return pair;
}

enum class Part { kWhole, kWhite, kBlack };  // of a chess board laid over the picture

struct Fit {
  Warp warp;
  double gain = 1, offset = 0;
  double spread = 1;  // of what gain · b + offset leaves of a
};

// visit(x, y, position in b) for every pixel of a part that both planes have.
template <typename Visit>
void ForPixels(const Pair& pair, const Warp& warp, Part part, const Visit& visit) {
  constexpr int64_t kFields = 8, kBorder = 3;
  const int64_t width = pair.a.width, height = pair.a.height;
  const double cx = Middle(width), cy = Middle(height);
  const auto inside = [](double x, int64_t size) {
    return x >= kBorder && x <= static_cast<double>(size - 1 - kBorder);
  };
  for (int64_t y = kBorder; y < height - kBorder; ++y) {
    const double v = cy + warp.shift_y + (1 + warp.scale_y) * (static_cast<double>(y) - cy);
    if (!inside(v, height)) continue;
    for (int64_t x = kBorder; x < width - kBorder; ++x) {
      const bool white = (x * kFields / width + y * kFields / height) % 2 == 0;
      if (part != Part::kWhole && white != (part == Part::kWhite)) continue;
      const double u = cx + warp.shift_x + (1 + warp.scale_x) * (static_cast<double>(x) - cx);
      if (inside(u, width)) visit(x, y, u, v);
    }
  }
}

// One step of Gauss and Newton towards the warp (and the gain and offset) that explain a by b. Pixels that
// fit far worse than the others count little: they are what was edited.
std::optional<double> Improve(const Pair& pair, Part part, Fit& fit) {
  const double cx = Middle(pair.a.width), cy = Middle(pair.a.height);
  constexpr double kTolerated = 0.6;  // of the usual error on edges
  Equations equations;
  double errors = 0, edges = 0;
  ForPixels(pair, fit.warp, part, [&](int64_t x, int64_t y, double u, double v) {
    const double value = pair.a.at(x, y);
    const Point b = pair.At(u, v);
    const double error = value - fit.gain * b.value - fit.offset;
    const double ratio = error / (kTolerated * fit.spread);
    const double trust = 1 / (1 + ratio * ratio), weight = trust * trust;
    const double dx = fit.gain * b.dx, dy = fit.gain * b.dy;
    // Coordinates from -1 to 1, so that the unknowns are all pixels at the border.
    equations.Add({b.value, 1, dx, dy, dx * (static_cast<double>(x) - cx) / cx,
                   dy * (static_cast<double>(y) - cy) / cy},
                  value, weight);
    errors += std::abs(error) * (value + b.value);
    edges += value + b.value;
  });
  const std::optional<Vector> solution = equations.Solve();
  if (!solution) return std::nullopt;
  const auto& [gain, offset, shift_x, shift_y, scale_x, scale_y] = *solution;
  fit.gain = gain;
  fit.offset = offset;
  // A step beyond what a slope can tell is cut short.
  const auto step = [](double pixels) { return std::clamp(pixels, -2.0, 2.0); };
  fit.warp.shift_x += step(shift_x);
  fit.warp.shift_y += step(shift_y);
  fit.warp.scale_x += step(scale_x) / cx;
  fit.warp.scale_y += step(scale_y) / cy;
  fit.spread = errors / edges + 1e-6;
  return std::max({std::abs(shift_x), std::abs(shift_y), std::abs(scale_x), std::abs(scale_y)});
}

bool Refine(const Pair& pair, Part part, Fit& fit) {
  constexpr int kMostSteps = 30;
  constexpr double kStill = 0.003;  // pixels
  for (int i = 0; i < kMostSteps; ++i) {
    const std::optional<double> moved = Improve(pair, part, fit);
    if (!moved) return false;
    if (*moved < kStill) break;
  }
  return true;
}

double Correlation(const Pair& pair, const Warp& warp) {
  double n = 0, a = 0, b = 0, aa = 0, bb = 0, ab = 0;
  ForPixels(pair, warp, Part::kWhole, [&](int64_t x, int64_t y, double u, double v) {
    const double p = pair.a.at(x, y), q = pair.At(u, v).value;
    n += 1, a += p, b += q, aa += p * p, bb += q * q, ab += p * q;
  });
  const double spread = (aa - a * a / n) * (bb - b * b / n);
  return spread > 0 ? (ab - a * b / n) / std::sqrt(spread) : 0;
}

// The edges of both pictures at one size, at most `longest` pixels long.
std::array<Plane, 2> EdgesAt(const Image& input, const Image& output, int64_t longest, ThreadPool& pool) {
  const double factor = std::min(
      1.0, static_cast<double>(longest) / static_cast<double>(std::max(output.width, output.height)));
  const auto side = [&](int64_t size) {
    return std::max<int64_t>(1, std::llround(static_cast<double>(size) * factor));
  };
  const auto edges = [&](const Image& image) {
    return EdgesOf(Resize(image, side(output.width), side(output.height), ResizeFilter::kLanczos, pool));
  };
  return {edges(input), edges(output)};
}

// The best of two fits: from where phase correlation points, and from no change at all, which is what users
// hope for.
std::optional<Fit> BestFit(const Pair& rough, const Pair& fine, const Warp& coarse, double& correlation) {
  constexpr double kGood = 0.9;
  std::optional<Fit> best;
  for (const Warp& start : {coarse, Warp{}}) {
    Fit fit{.warp = start};
    if (!Refine(rough, Part::kWhole, fit) || !Refine(fine, Part::kWhole, fit)) continue;
    const double found = Correlation(fine, fit.warp);
    if (best && found <= correlation) continue;
    best = fit;
    correlation = found;
    if (found > kGood) break;
  }
  return best;
}

// By how many pixels two warps put the same point to different places, at most.
double Disagreement(const Warp& p, const Warp& q, int64_t width, int64_t height) {
  return std::max(std::abs(p.shift_x - q.shift_x) + std::abs(p.scale_x - q.scale_x) * Middle(width),
                  std::abs(p.shift_y - q.shift_y) + std::abs(p.scale_y - q.scale_y) * Middle(height));
}

// Measured: pictures with nothing in common correlate by at most 0.24, and their halves disagree by nearly a
// pixel and more; with half of a picture replaced it is 0.46 and more, and a few tenths of a pixel.
bool Believable(const Warp& warp, const Plane& plane, double correlation, double disagreement) {
  constexpr double kLowestCorrelation = 0.45, kLargestDisagreement = 0.5, kLargestScale = 0.12,
                   kLargestShift = 0.25;
  return correlation >= kLowestCorrelation && disagreement <= kLargestDisagreement &&
         std::max(std::abs(warp.scale_x), std::abs(warp.scale_y)) <= kLargestScale &&
         std::abs(warp.shift_x) <= kLargestShift * static_cast<double>(plane.width) &&
         std::abs(warp.shift_y) <= kLargestShift * static_cast<double>(plane.height);
}

}  // namespace

Alignment MeasureAlignment(const Image& input, const Image& output, ThreadPool& pool) {
  if (input.has_alpha() || output.has_alpha()) return MeasureAlignment(Flatten(input), Flatten(output), pool);
  constexpr int64_t kCoarseSide = 256, kFineSide = 512, kShortest = 32;
  if (std::min(output.width, output.height) < kShortest) return {};
  const auto [a, b] = EdgesAt(input, output, kFineSide, pool);
  if (std::min(a.width, a.height) < kShortest) return {};

  // 1. Roughly, at a few scales.
  const auto [coarse_a, coarse_b] = EdgesAt(input, output, kCoarseSide, pool);
  Warp coarse = CoarseWarp(coarse_a, coarse_b);
  coarse.shift_x *= static_cast<double>(a.width) / static_cast<double>(coarse_a.width);
  coarse.shift_y *= static_cast<double>(a.height) / static_cast<double>(coarse_a.height);

  // 2. To fractions of a pixel.
  const Pair rough = MakePair(a, b, 4.0), fine = MakePair(a, b, 1.0);
  double correlation = 0;
  const std::optional<Fit> fit = BestFit(rough, fine, coarse, correlation);
  if (!fit) return {};

  // 3. Each half of the picture alone: what is true of the whole is true of both.
  Fit white = *fit, black = *fit;
  if (!Refine(fine, Part::kWhite, white) || !Refine(fine, Part::kBlack, black)) return {};
  const double disagreement = Disagreement(white.warp, black.warp, a.width, a.height) / 2;

  const double to_output_x = static_cast<double>(output.width) / static_cast<double>(a.width);
  const double to_output_y = static_cast<double>(output.height) / static_cast<double>(a.height);
  return {.measurable = Believable(fit->warp, a, correlation, disagreement),
          .shift_x = fit->warp.shift_x * to_output_x,
          .shift_y = fit->warp.shift_y * to_output_y,
          .scale_x = 100 * fit->warp.scale_x,
          .scale_y = 100 * fit->warp.scale_y,
          .confidence = std::max(correlation, 0.0),
          .uncertainty = disagreement * std::max(to_output_x, to_output_y)};
}

}  // namespace qwen_image::image
