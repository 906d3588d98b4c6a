#include "image/plane.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <numbers>
#include <numeric>

namespace qwen_image::image {
namespace {

using Complex = std::complex<float>;

// In place; the size is a power of two. Radix 2: bits reversed, then butterflies. The inverse is not divided.
void Fourier(Complex* x, int64_t size, bool inverse) {
  for (int64_t i = 1, j = 0; i < size; ++i) {
    int64_t bit = size >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) std::swap(x[i], x[j]);
  }
  for (int64_t length = 2; length <= size; length *= 2) {
    const double angle = (inverse ? 2 : -2) * std::numbers::pi / static_cast<double>(length);
    const std::complex<double> turn = std::polar(1.0, angle);
    std::complex<double> factor = 1;
    for (int64_t i = 0; i < length / 2; ++i, factor *= turn) {
      const Complex f(factor);
      for (int64_t start = i; start < size; start += length) {
        const Complex odd = x[start + length / 2] * f;
        x[start + length / 2] = x[start] - odd;
        x[start] += odd;
      }
    }
  }
}

struct Spectrum {
  int64_t width, height;
  std::vector<Complex> values;
};

void Transform(Spectrum& s, bool inverse) {
  for (int64_t y = 0; y < s.height; ++y) Fourier(s.values.data() + y * s.width, s.width, inverse);
  std::vector<Complex> column(static_cast<size_t>(s.height));
  for (int64_t x = 0; x < s.width; ++x) {
    for (int64_t y = 0; y < s.height; ++y)
      column[static_cast<size_t>(y)] = s.values[static_cast<size_t>(y * s.width + x)];
    Fourier(column.data(), s.height, inverse);
    for (int64_t y = 0; y < s.height; ++y)
      s.values[static_cast<size_t>(y * s.width + x)] = column[static_cast<size_t>(y)];
  }
}

// Without its mean, faded out towards the borders, which would otherwise be the strongest edges of all.
Spectrum SpectrumOf(const Plane& plane) {
  const auto power = [](int64_t side) {
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(side)));
  };
  Spectrum s{power(plane.width), power(plane.height), {}};
  s.values.resize(static_cast<size_t>(s.width * s.height));
  const auto fade = [](int64_t i, int64_t size) {
    const double x = std::sin(std::numbers::pi * (static_cast<double>(i) + 0.5) / static_cast<double>(size));
    return static_cast<float>(x * x);
  };
  const double mean = std::accumulate(plane.values.begin(), plane.values.end(), 0.0) /
                      static_cast<double>(std::max<size_t>(plane.values.size(), 1));
  for (int64_t y = 0; y < plane.height; ++y) {
    for (int64_t x = 0; x < plane.width; ++x) {
      s.values[static_cast<size_t>(y * s.width + x)] =
          (plane.at(x, y) - static_cast<float>(mean)) * fade(x, plane.width) * fade(y, plane.height);
    }
  }
  Transform(s, false);
  return s;
}

// Index of a spectrum or a correlation as a signed number.
double Signed(int64_t i, int64_t size) { return static_cast<double>(i < (size + 1) / 2 ? i : i - size); }

std::vector<float> GaussianKernel(double sigma) {
  const auto radius = static_cast<int64_t>(std::ceil(3 * sigma));
  std::vector<float> kernel;
  for (int64_t i = -radius; i <= radius; ++i) {
    kernel.push_back(static_cast<float>(std::exp(-0.5 * static_cast<double>(i * i) / (sigma * sigma))));
  }
  const float sum = std::accumulate(kernel.begin(), kernel.end(), 0.0f);
  for (float& k : kernel) k /= sum;
  return kernel;
}

}  // namespace

Plane MakePlane(int64_t width, int64_t height) {
  return {width, height, std::vector<float>(static_cast<size_t>(width * height))};
}

Plane Blurred(const Plane& plane, double sigma) {
  const std::vector<float> kernel = GaussianKernel(sigma);
  const auto radius = static_cast<int64_t>(kernel.size() / 2);
  Plane across = MakePlane(plane.width, plane.height), out = across;
  for (int64_t y = 0; y < plane.height; ++y) {
    for (int64_t x = 0; x < plane.width; ++x) {
      for (int64_t i = -radius; i <= radius; ++i) {
        across.at(x, y) += kernel[static_cast<size_t>(i + radius)] *
                           plane.at(std::clamp<int64_t>(x + i, 0, plane.width - 1), y);
      }
    }
  }
  for (int64_t y = 0; y < plane.height; ++y) {
    for (int64_t i = -radius; i <= radius; ++i) {
      const float k = kernel[static_cast<size_t>(i + radius)];
      const int64_t from = std::clamp<int64_t>(y + i, 0, plane.height - 1);
      for (int64_t x = 0; x < plane.width; ++x) out.at(x, y) += k * across.at(x, from);
    }
  }
  return out;
}

float Sample(const Plane& plane, double x, double y) {
  x = std::clamp(x, 0.0, static_cast<double>(plane.width - 1));
  y = std::clamp(y, 0.0, static_cast<double>(plane.height - 1));
  const auto left = static_cast<int64_t>(x), top = static_cast<int64_t>(y);
  const int64_t right = std::min(left + 1, plane.width - 1), bottom = std::min(top + 1, plane.height - 1);
  const float fx = static_cast<float>(x - static_cast<double>(left)),
              fy = static_cast<float>(y - static_cast<double>(top));
  const float above = plane.at(left, top) + fx * (plane.at(right, top) - plane.at(left, top));
  const float below = plane.at(left, bottom) + fx * (plane.at(right, bottom) - plane.at(left, bottom));
  return above + fy * (below - above);
}

Plane EdgesOf(const Image& image) {
  constexpr double kBlur = 1.0;  // against noise
  Plane edges = MakePlane(image.width, image.height);
  for (int64_t c = 0; c < 3; ++c) {
    Plane plane = MakePlane(image.width, image.height);
    for (size_t i = 0; i < plane.values.size(); ++i)
      plane.values[i] = image.pixels[3 * i + static_cast<size_t>(c)];
    plane = Blurred(plane, kBlur);
    // The border's pixels repeat beyond it: a picture's frame must not look like an edge that never moves.
    for (int64_t y = 0; y < image.height; ++y) {
      const int64_t up = std::max<int64_t>(y - 1, 0), down = std::min(y + 1, image.height - 1);
      for (int64_t x = 0; x < image.width; ++x) {
        const int64_t left = std::max<int64_t>(x - 1, 0), right = std::min(x + 1, image.width - 1);
        const float dx = plane.at(right, y) - plane.at(left, y), dy = plane.at(x, down) - plane.at(x, up);
        edges.at(x, y) += dx * dx + dy * dy;
      }
    }
  }
  // Strong edges must not drown all others: what is far above the usual strength of an edge approaches 1.
  double sum = 0, squares = 0;
  for (float& e : edges.values) {
    squares += e;
    e = std::sqrt(e);
    sum += e;
  }
  const float usual = static_cast<float>(squares / std::max(sum, 1e-9)) + 1e-3f;
  for (float& e : edges.values) e /= e + usual;
  return edges;
}

PhasePeak PhaseCorrelation(const Plane& a, const Plane& b) {
  constexpr double kHighest = 0.12;  // cycles a pixel: finer detail is noise more than anything else
  Spectrum product = SpectrumOf(b);
  const Spectrum other = SpectrumOf(a);
  double total = 0;
  for (int64_t y = 0; y < product.height; ++y) {
    for (int64_t x = 0; x < product.width; ++x) {
      const auto i = static_cast<size_t>(y * product.width + x);
      const double u = Signed(x, product.width) / static_cast<double>(product.width) / kHighest;
      const double v = Signed(y, product.height) / static_cast<double>(product.height) / kHighest;
      const double weight = std::exp(-0.5 * (u * u + v * v));
      const Complex cross = product.values[i] * std::conj(other.values[i]);
      const float size = std::abs(cross);
      product.values[i] = size > 1e-12f ? cross * (static_cast<float>(weight) / size) : 0.0f;
      total += weight;
    }
  }
  Transform(product, true);
  const auto highest = std::max_element(product.values.begin(), product.values.end(),
                                        [](Complex p, Complex q) { return p.real() < q.real(); });
  const int64_t at = highest - product.values.begin();
  return {Signed(at % product.width, product.width), Signed(at / product.width, product.height),
          highest->real() / total};
}

}  // namespace qwen_image::image
