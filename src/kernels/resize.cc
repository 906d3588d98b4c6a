#include "kernels/resize.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/resize.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must follow foreach_target.h.
#include "hwy/highway.h"

// Included once per instruction set; what does not depend on it is declared the first time.
#ifndef QWEN_IMAGE_KERNELS_RESIZE_CC_
#define QWEN_IMAGE_KERNELS_RESIZE_CC_
namespace qwen_image {
// Pillow's fixed-point format: 8 bits of the pixel and 2 for sums beyond 255 leave 22 of 32.
inline constexpr int kPrecisionBits = 32 - 8 - 2;
}  // namespace qwen_image
#endif

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// out[i] = Σ in[t · stride + i] · weights[t] over `taps` rows, in fixed point, rounded and clipped to 8 bits.
void WeightedRows(const uint8_t* in, int64_t stride, const int32_t* weights, int64_t taps, int64_t count,
                  uint8_t* out) {
  const hn::ScalableTag<int32_t> d32;
  const hn::Rebind<uint8_t, decltype(d32)> d8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d32));
  const auto half = hn::Set(d32, 1 << (kPrecisionBits - 1));
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    auto sum0 = half, sum1 = half, sum2 = half, sum3 = half;
    const uint8_t* at = in + i;
    for (int64_t t = 0; t < taps; ++t, at += stride) {
      const auto weight = hn::Set(d32, weights[t]);
      sum0 = hn::Add(sum0, hn::Mul(hn::PromoteTo(d32, hn::LoadU(d8, at)), weight));
      sum1 = hn::Add(sum1, hn::Mul(hn::PromoteTo(d32, hn::LoadU(d8, at + lanes)), weight));
      sum2 = hn::Add(sum2, hn::Mul(hn::PromoteTo(d32, hn::LoadU(d8, at + 2 * lanes)), weight));
      sum3 = hn::Add(sum3, hn::Mul(hn::PromoteTo(d32, hn::LoadU(d8, at + 3 * lanes)), weight));
    }
    hn::StoreU(hn::DemoteTo(d8, hn::ShiftRight<kPrecisionBits>(sum0)), d8, out + i);
    hn::StoreU(hn::DemoteTo(d8, hn::ShiftRight<kPrecisionBits>(sum1)), d8, out + i + lanes);
    hn::StoreU(hn::DemoteTo(d8, hn::ShiftRight<kPrecisionBits>(sum2)), d8, out + i + 2 * lanes);
    hn::StoreU(hn::DemoteTo(d8, hn::ShiftRight<kPrecisionBits>(sum3)), d8, out + i + 3 * lanes);
  }
  for (; i < count; ++i) {
    int32_t sum = 1 << (kPrecisionBits - 1);
    for (int64_t t = 0; t < taps; ++t) sum += in[t * stride + i] * weights[t];
    out[i] = static_cast<uint8_t>(std::clamp(sum >> kPrecisionBits, 0, 255));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qwen_image {

HWY_EXPORT(WeightedRows);

namespace {

// Which pixels of the input make each pixel of the output, and their shares.
struct Weights {
  struct Range {
    int64_t first, count;
  };
  std::vector<Range> ranges;    // [out]
  std::vector<int32_t> values;  // [out, max_count]
  int64_t max_count;

  const int32_t* of(int64_t out) const { return values.data() + out * max_count; }
};

double Bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

double Sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double Lanczos(double x) { return x >= -3 && x < 3 ? Sinc(x) * Sinc(x / 3) : 0; }

int32_t ToFixed(double weight) {
  return static_cast<int32_t>((weight < 0 ? -0.5 : 0.5) + weight * (1 << kPrecisionBits));
}

// The order of the operations is Pillow's, so that all weights round alike.
Weights MakeWeights(int64_t in, int64_t out, ResizeFilter filter) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double stretch = std::max(scale, 1.0);  // shrinking: every pixel of the input has its share
  const double support = (filter == ResizeFilter::kBicubic ? 2.0 : 3.0) * stretch;
  const double step = 1.0 / stretch;

  Weights w;
  w.max_count = std::min(static_cast<int64_t>(std::ceil(support)) * 2 + 1, in);
  w.ranges.resize(static_cast<size_t>(out));
  w.values.resize(static_cast<size_t>(out * w.max_count));
  std::vector<double> shares(static_cast<size_t>(w.max_count));
  for (int64_t o = 0; o < out; ++o) {
    const double center = (static_cast<double>(o) + 0.5) * scale;
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const int64_t end = std::min(static_cast<int64_t>(center + support + 0.5), in);
    w.ranges[static_cast<size_t>(o)] = {first, end - first};
    double sum = 0;
    for (int64_t i = first; i < end; ++i) {
      const double x = (static_cast<double>(i) - center + 0.5) * step;
      const double share = filter == ResizeFilter::kBicubic ? Bicubic(x) : Lanczos(x);
      shares[static_cast<size_t>(i - first)] = share;
      sum += share;
    }
    for (int64_t i = 0; i < end - first; ++i) {
      w.values[static_cast<size_t>(o * w.max_count + i)] = ToFixed(shares[static_cast<size_t>(i)] / sum);
    }
  }
  return w;
}

using Bytes = std::vector<uint8_t>;

// [height, in_width, channels] → [height, width, channels]. Rows are turned into columns, many of them at
// once, so that sums over neighbours in a row become sums over rows.
Bytes ResizeWidth(const Bytes& in, int64_t in_width, int64_t channels, int64_t width, ResizeFilter filter,
                  ThreadPool& pool) {
  constexpr int64_t kRowsAtOnce = 64;
  const Weights weights = MakeWeights(in_width, width, filter);
  const int64_t in_row = in_width * channels, row = width * channels, column = channels * kRowsAtOnce;
  const int64_t height = static_cast<int64_t>(in.size()) / in_row;
  Bytes out(static_cast<size_t>(height * row));
  pool.ParallelFor(CeilDiv(height, kRowsAtOnce), [&](int64_t task) {
    const int64_t first_row = task * kRowsAtOnce, rows = std::min(kRowsAtOnce, height - first_row);
    auto* turned = reinterpret_cast<uint8_t*>(ThreadScratch((in_width + 1) * column / 4));
    uint8_t* sums = turned + in_width * column;
    if (rows < kRowsAtOnce) std::fill(turned, sums, uint8_t{0});
    for (int64_t block = 0; block < in_row; block += kRowsAtOnce) {  // small enough for the first cache
      const int64_t end = std::min(block + kRowsAtOnce, in_row);
      for (int64_t r = 0; r < rows; ++r) {
        const uint8_t* from = in.data() + (first_row + r) * in_row;
        for (int64_t i = block; i < end; ++i) turned[i * kRowsAtOnce + r] = from[i];
      }
    }
    for (int64_t x = 0; x < width; ++x) {
      const auto [first, count] = weights.ranges[static_cast<size_t>(x)];
      HWY_DYNAMIC_DISPATCH(WeightedRows)
      (turned + first * column, column, weights.of(x), count, column, sums);
      for (int64_t c = 0; c < channels; ++c) {
        uint8_t* to = out.data() + first_row * row + x * channels + c;
        for (int64_t r = 0; r < rows; ++r) to[r * row] = sums[c * kRowsAtOnce + r];
      }
    }
  });
  return out;
}

// [in_height, row] → [height, row]
Bytes ResizeHeight(const Bytes& in, int64_t in_height, int64_t height, ResizeFilter filter,
                   ThreadPool& pool) {
  const Weights weights = MakeWeights(in_height, height, filter);
  const int64_t row = static_cast<int64_t>(in.size()) / in_height;
  Bytes out(static_cast<size_t>(height * row));
  ForPieces(height, row, pool, [&](int64_t begin, int64_t end) {
    for (int64_t y = begin; y < end; ++y) {
      const auto [first, count] = weights.ranges[static_cast<size_t>(y)];
      HWY_DYNAMIC_DISPATCH(WeightedRows)
      (in.data() + first * row, row, weights.of(y), count, row, out.data() + y * row);
    }
  });
  return out;
}

// Two passes with 8 bits in between, so their order matters. Since version 13 Pillow goes down before across
// where the height shrinks by more than twice as many pixels as the width; before, it always went across
// first.
Bytes Resized(const Bytes& pixels, int64_t in_width, int64_t in_height, int64_t channels, int64_t width,
              int64_t height, ResizeFilter filter, ThreadPool& pool) {
  constexpr int64_t kMaxSide = 1 << 20;  // keeps products of sides far from overflow
  for (const int64_t side : {in_width, in_height, width, height}) {
    if (side < 1 || side > kMaxSide) {
      Fail(ErrorKind::kUsage, "cannot resize a picture of {}x{} to {}x{}: sides go from 1 to {}", in_width,
           in_height, width, height, kMaxSide);
    }
  }
  if (static_cast<int64_t>(pixels.size()) != in_width * in_height * channels) {
    Fail(ErrorKind::kUsage, "a picture of {}x{} with {} channels cannot hold {} bytes", in_width, in_height,
         channels, pixels.size());
  }
  if (width == in_width && height == in_height) return pixels;
  if (height == in_height) return ResizeWidth(pixels, in_width, channels, width, filter, pool);
  if (width == in_width) return ResizeHeight(pixels, in_height, height, filter, pool);
  if (height < in_height && in_height - height > 2 * (in_width - width)) {
    const Bytes low = ResizeHeight(pixels, in_height, height, filter, pool);
    return ResizeWidth(low, in_width, channels, width, filter, pool);
  }
  const Bytes narrow = ResizeWidth(pixels, in_width, channels, width, filter, pool);
  return ResizeHeight(narrow, in_height, height, filter, pool);
}

// From RGBA to Pillow's RGBa and back, in its integers. Invisible pixels have no share in the colours of
// their neighbours then.
void MultiplyByAlpha(Bytes& pixels) {
  for (size_t i = 0; i + 3 < pixels.size(); i += 4) {
    for (size_t c = i; c < i + 3; ++c) {
      const uint32_t product = uint32_t{pixels[c]} * pixels[i + 3] + 128;
      pixels[c] = static_cast<uint8_t>((product + (product >> 8)) >> 8);  // / 255, rounded
    }
  }
}

void DivideByAlpha(Bytes& pixels) {
  for (size_t i = 0; i + 3 < pixels.size(); i += 4) {
    const uint32_t alpha = pixels[i + 3];
    if (alpha == 0) continue;
    for (size_t c = i; c < i + 3; ++c)
      pixels[c] = static_cast<uint8_t>(std::min(255 * uint32_t{pixels[c]} / alpha, 255u));
  }
}

// torch's index of the nearest pixel, in its precision.
int64_t NearestIndex(int64_t out, int64_t in_size, int64_t out_size) {
  const float scale = static_cast<float>(in_size) / static_cast<float>(out_size);
  return std::min(static_cast<int64_t>(std::floor(static_cast<float>(out) * scale)), in_size - 1);
}

}  // namespace

Image Resize(const Image& image, int64_t width, int64_t height, ResizeFilter filter, ThreadPool& pool) {
  if (image.channels != 3 && image.channels != 4)
    Fail(ErrorKind::kUsage, "a picture has 3 or 4 channels, not {}", image.channels);
  const auto resized = [&](const Bytes& pixels) {
    return Resized(pixels, image.width, image.height, image.channels, width, height, filter, pool);
  };
  const bool same_size = width == image.width && height == image.height;
  if (!image.has_alpha() || same_size) return {width, height, resized(image.pixels), image.channels};
  Bytes pixels = image.pixels;
  MultiplyByAlpha(pixels);
  pixels = resized(pixels);
  DivideByAlpha(pixels);
  return {width, height, std::move(pixels), image.channels};
}

GreyImage Resize(const GreyImage& image, int64_t width, int64_t height, ResizeFilter filter,
                 ThreadPool& pool) {
  return {width, height, Resized(image.pixels, image.width, image.height, 1, width, height, filter, pool)};
}

Tensor InterpolateNearest(const Tensor& x, int64_t height, int64_t width) {
  const int64_t in_height = x.dim(2), in_width = x.dim(3);
  Tensor y({x.dim(0), x.dim(1), height, width});
  for (int64_t plane = 0; plane < x.dim(0) * x.dim(1); ++plane) {
    for (int64_t row = 0; row < height; ++row) {
      const float* from = x.row(plane * in_height + NearestIndex(row, in_height, height));
      float* to = y.row(plane * height + row);
      for (int64_t column = 0; column < width; ++column) {
        to[column] = from[NearestIndex(column, in_width, width)];
      }
    }
  }
  return y;
}

}  // namespace qwen_image
#endif  // HWY_ONCE
