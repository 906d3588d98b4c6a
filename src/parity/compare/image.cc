#include "parity/compare/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace qwen_image::compare {
namespace {

constexpr int64_t kMaxWindow = 11;
constexpr double kSigma = 1.5;

std::vector<double> GaussianWindow(int64_t size) {
  std::vector<double> window(static_cast<size_t>(size));
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) {
    const double x = static_cast<double>(i) - static_cast<double>(size - 1) / 2;
    sum += window[static_cast<size_t>(i)] = std::exp(-x * x / (2 * kSigma * kSigma));
  }
  for (double& weight : window) weight /= sum;
  return window;
}

// The value of white, and of what is opaque.
double Top(double range) { return range == 255 ? 255 : range / 2; }

std::vector<double> LumaRow(const FloatImage& p, int64_t y, double range) {
  const float* r = p.values.data() + y * p.width;
  const float* g = r + p.width * p.height;
  const float* b = g + p.width * p.height;
  std::vector<double> luma(static_cast<size_t>(p.width));
  for (size_t x = 0; x < luma.size(); ++x) luma[x] = 0.299 * r[x] + 0.587 * g[x] + 0.114 * b[x];
  if (p.channels < 4) return luma;
  const float* alpha = b + p.width * p.height;
  for (size_t x = 0; x < luma.size(); ++x)
    luma[x] += (Top(range) - luma[x]) * (Top(range) - alpha[x]) / range;
  return luma;
}

FloatImage WithAlpha(FloatImage p, double range) {
  p.values.resize(static_cast<size_t>(4 * p.width * p.height), static_cast<float>(Top(range)));
  p.channels = 4;
  return p;
}

// What SSIM averages over its window: a, b, a², b², ab.
constexpr size_t kMoments = 5;
using Moments = std::array<double, kMoments>;

// One row of both pictures, averaged along x.
std::vector<Moments> BlurredRow(const std::vector<double>& a, const std::vector<double>& b,
                                const std::vector<double>& window) {
  std::vector<Moments> row(a.size() - window.size() + 1);
  for (size_t x = 0; x < row.size(); ++x) {
    Moments& m = row[x] = {};
    for (size_t k = 0; k < window.size(); ++k) {
      const double va = a[x + k], vb = b[x + k], w = window[k];
      m[0] += w * va;
      m[1] += w * vb;
      m[2] += w * va * va;
      m[3] += w * vb * vb;
      m[4] += w * va * vb;
    }
  }
  return row;
}

double SsimOf(const Moments& m, double range) {
  const double c1 = std::pow(0.01 * range, 2), c2 = std::pow(0.03 * range, 2);
  const double variance_a = m[2] - m[0] * m[0], variance_b = m[3] - m[1] * m[1];
  const double covariance = m[4] - m[0] * m[1];
  return (2 * m[0] * m[1] + c1) * (2 * covariance + c2) /
         ((m[0] * m[0] + m[1] * m[1] + c1) * (variance_a + variance_b + c2));
}

double Ssim(const FloatImage& ref, const FloatImage& run, double range) {
  const int64_t shorter = std::min(ref.width, ref.height);
  const std::vector<double> window =
      GaussianWindow(std::min(kMaxWindow, shorter % 2 ? shorter : shorter - 1));
  const auto size = static_cast<int64_t>(window.size());
  // Only the rows under the window are kept, so that large pictures need little memory.
  std::vector<std::vector<Moments>> rows(window.size());
  double sum = 0;
  for (int64_t y = 0; y < ref.height; ++y) {
    rows[static_cast<size_t>(y % size)] = BlurredRow(LumaRow(ref, y, range), LumaRow(run, y, range), window);
    if (y + 1 < size) continue;
    for (size_t x = 0; x < rows[0].size(); ++x) {
      Moments m{};
      for (int64_t k = 0; k < size; ++k) {
        const Moments& part = rows[static_cast<size_t>((y + 1 + k) % size)][x];
        for (size_t j = 0; j < kMoments; ++j) m[j] += window[static_cast<size_t>(k)] * part[j];
      }
      sum += SsimOf(m, range);
    }
  }
  return sum / static_cast<double>((ref.width - size + 1) * (ref.height - size + 1));
}

void ChannelFigures(const FloatImage& p, std::vector<double>* means, std::vector<double>* deviations) {
  const int64_t pixels = p.width * p.height;
  for (int64_t c = 0; c < p.channels; ++c) {
    const float* values = p.values.data() + c * pixels;
    double sum = 0, square = 0;
    for (int64_t i = 0; i < pixels; ++i) sum += values[i];
    const double mean = sum / static_cast<double>(pixels);
    for (int64_t i = 0; i < pixels; ++i) square += std::pow(values[i] - mean, 2);
    means->push_back(mean);
    deviations->push_back(std::sqrt(square / static_cast<double>(pixels)));
  }
}

}  // namespace

FloatImage ToFloatImage(const Image& image) {
  FloatImage picture{image.width, image.height, std::vector<float>(image.pixels.size()), image.channels};
  const auto channels = static_cast<size_t>(image.channels);
  const size_t pixels = image.pixels.size() / channels;
  for (size_t i = 0; i < pixels; ++i) {
    for (size_t c = 0; c < channels; ++c) picture.values[c * pixels + i] = image.pixels[i * channels + c];
  }
  return picture;
}

ImageComparison CompareImages(const FloatImage& ref, const FloatImage& run, double range) {
  if (ref.channels != run.channels) {
    const bool from_ref = ref.channels < run.channels;
    ImageComparison result = from_ref ? CompareImages(WithAlpha(ref, range), run, range)
                                      : CompareImages(ref, WithAlpha(run, range), range);
    result.note = fmt::format("the {} has no alpha, and counts as opaque", from_ref ? "reference" : "run");
    return result;
  }
  ImageComparison result;
  ChannelFigures(ref, &result.ref_mean, &result.ref_std);
  ChannelFigures(run, &result.run_mean, &result.run_std);
  if (ref.width != run.width || ref.height != run.height) {
    result.problem =
        fmt::format("{} x {} pixels, expected {} x {}", run.width, run.height, ref.width, ref.height);
    return result;
  }
  double square = 0, largest = 0;
  for (size_t i = 0; i < ref.values.size(); ++i) {
    const double error = std::abs(static_cast<double>(run.values[i]) - ref.values[i]);
    square += error * error;
    if (!(error <= largest)) largest = error;  // a NaN stays
  }
  const double mean_square = square / static_cast<double>(ref.values.size());
  const double levels = 255 / range;
  result.rmse = std::sqrt(mean_square) * levels;
  result.max_levels = largest * levels;
  result.psnr = 10 * std::log10(range * range / mean_square);
  result.ssim = Ssim(ref, run, range);
  return result;
}

bool IsSameImage(const ImageComparison& p) { return p.problem.empty() && p.max_levels <= 1 && p.psnr >= 60; }

}  // namespace qwen_image::compare
