#include "kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

namespace qwen_image::reference {
namespace {

double Dot(const float* a, const float* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

double SiluOf(double x) { return x < -700 ? x * 0.0 : x / (1 + std::exp(-x)); }

// y = f(column, in...) element by element
template <class F, class... In>
void Map(View y, const F& f, In... in) {
  for (int64_t r = 0; r < y.rows; ++r) {
    for (int64_t c = 0; c < y.cols; ++c) y.row(r)[c] = static_cast<float>(f(c, in.row(r)[c]...));
  }
}

// f(row of x, row of w, their product)
template <class F>
void ForProducts(ConstView x, const WeightMatrix& w, const F& f) {
  std::vector<float> weights(static_cast<size_t>(w.cols));
  for (int64_t n = 0; n < w.rows; ++n) {
    DecodeRow(w, n, 0, w.cols, weights.data());
    for (int64_t m = 0; m < x.rows; ++m) f(m, n, Dot(x.row(m), weights.data(), w.cols));
  }
}

// The keys that a query sees.
int64_t SeenBy(int64_t query, ConstView q, ConstView k, const AttentionShape& s) {
  return s.causal ? k.rows - q.rows + query + 1 : k.rows;
}

// softmax_j(q[query, head] · k[j, head'] / √head_dim) over the keys that the query sees
std::vector<double> SoftmaxOf(ConstView q, ConstView k, const AttentionShape& s, int64_t query,
                              int64_t head) {
  std::vector<double> weights(static_cast<size_t>(SeenBy(query, q, k, s)));
  const int64_t kv_offset = head / (s.heads / s.kv_heads) * s.head_dim;
  double largest = -std::numeric_limits<double>::infinity();
  for (size_t j = 0; j < weights.size(); ++j) {
    const double dot =
        Dot(q.row(query) + head * s.head_dim, k.row(static_cast<int64_t>(j)) + kv_offset, s.head_dim);
    weights[j] = dot / std::sqrt(static_cast<double>(s.head_dim));
    largest = std::max(largest, weights[j]);
  }
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - largest);
  for (double& weight : weights) weight /= sum;
  return weights;
}

// torch's nearest-exact with factor 2
void UpsampleNearest2x(const float* x, int64_t height, int64_t width, int64_t channels, float* y) {
  for (int64_t i = 0; i < 2 * height; ++i) {
    for (int64_t j = 0; j < 2 * width; ++j) {
      for (int64_t c = 0; c < channels; ++c) {
        y[(i * 2 * width + j) * channels + c] = x[(i / 2 * width + j / 2) * channels + c];
      }
    }
  }
}

}  // namespace

void MatMul(ConstView x, const WeightMatrix& w, const float* bias, View y) {
  ForProducts(x, w, [&](int64_t r, int64_t c, double sum) {
    y.row(r)[c] = static_cast<float>(sum + (bias ? bias[c] : 0.0f));
  });
}

void AddMatMul(ConstView x, const WeightMatrix& w, View y) {
  ForProducts(x, w,
              [&](int64_t r, int64_t c, double sum) { y.row(r)[c] = static_cast<float>(y.row(r)[c] + sum); });
}

void Attention(ConstView q, ConstView k, ConstView v, const AttentionShape& s, View out) {
  for (int64_t i = 0; i < q.rows; ++i) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const std::vector<double> weights = SoftmaxOf(q, k, s, i, h);
      const int64_t kv_offset = h / (s.heads / s.kv_heads) * s.head_dim;
      for (int64_t d = 0; d < s.head_dim; ++d) {
        double value = 0;
        for (size_t j = 0; j < weights.size(); ++j) {
          value += weights[j] * v.row(static_cast<int64_t>(j))[kv_offset + d];
        }
        out.row(i)[h * s.head_dim + d] = static_cast<float>(value);
      }
    }
  }
}

void AttentionWeights(ConstView q, ConstView k, const AttentionShape& s, float* weights) {
  std::fill_n(weights, s.heads * q.rows * k.rows, 0.0f);
  for (int64_t h = 0; h < s.heads; ++h) {
    for (int64_t i = 0; i < q.rows; ++i, weights += k.rows) {
      const std::vector<double> row = SoftmaxOf(q, k, s, i, h);
      std::transform(row.begin(), row.end(), weights,
                     [](double weight) { return static_cast<float>(weight); });
    }
  }
}

void AttentionEntropy(ConstView q, ConstView k, const AttentionShape& s, int64_t max_queries,
                      float* entropy) {
  const int64_t sampled = std::min(max_queries, q.rows);
  for (int64_t h = 0; h < s.heads; ++h) {
    double sum = 0;
    for (int64_t i = 0; i < sampled; ++i) {
      const std::vector<double> row = SoftmaxOf(q, k, s, i * q.rows / sampled, h);
      for (double weight : row) {
        if (weight > 0 && row.size() > 1)
          sum -= weight * std::log(weight) / std::log(static_cast<double>(row.size()));
      }
    }
    entropy[h] = static_cast<float>(sum / static_cast<double>(sampled));
  }
}

void Conv2d(const float* x, const Conv2dShape& s, const float* weight, const float* bias, float* y) {
  for (int64_t i = 0; i < s.out_height() * s.out_width(); ++i) {
    const int64_t top = i / s.out_width() * s.stride - s.pad_before;
    const int64_t left = i % s.out_width() * s.stride - s.pad_before;
    for (int64_t o = 0; o < s.out_channels; ++o) {
      double sum = bias ? bias[o] : 0.0f;
      for (int64_t ky = 0; ky < s.kernel; ++ky) {
        for (int64_t kx = 0; kx < s.kernel; ++kx) {
          if (top + ky < 0 || top + ky >= s.height || left + kx < 0 || left + kx >= s.width) continue;
          sum += Dot(x + ((top + ky) * s.width + left + kx) * s.in_channels,
                     weight + ((o * s.kernel + ky) * s.kernel + kx) * s.in_channels, s.in_channels);
        }
      }
      y[i * s.out_channels + o] = static_cast<float>(sum);
    }
  }
}

void Conv3x3(const Conv3x3Shape& s, const WeightMatrix& weight, const Conv3x3Input& input, const float* bias,
             const float* residual, float* y) {
  std::vector<float> x(input.x, input.x + s.height * s.width * s.in_channels);
  if (input.norm_gamma) {
    const View pixels{x.data(), s.height * s.width, s.in_channels};
    ChannelNorm(pixels, input.norm_gamma, pixels);
    Silu(pixels, pixels);
  }
  if (s.upsample) {
    std::vector<float> large(4 * x.size());
    UpsampleNearest2x(x.data(), s.height, s.width, s.in_channels, large.data());
    x.swap(large);
  }
  std::vector<float> row(static_cast<size_t>(weight.cols));
  std::vector<float> channels_last(static_cast<size_t>(s.out_channels * 9 * s.in_channels));
  for (int64_t o = 0; o < s.out_channels; ++o) {
    DecodeRow(weight, o, 0, weight.cols, row.data());
    const int64_t stride = weight.cols / s.in_channels;
    for (int64_t i = 0; i < s.in_channels; ++i) {
      for (int64_t k = 0; k < 9; ++k)
        channels_last[(o * 9 + k) * s.in_channels + i] = row[(i + 1) * stride - 9 + k];
    }
  }
  std::vector<float> sums(static_cast<size_t>(s.out_height() * s.out_width() * s.out_channels));
  Conv2d(x.data(), {s.in_channels, s.out_channels, s.out_height(), s.out_width(), 3, 1, 1, 1},
         channels_last.data(), bias, sums.data());
  for (size_t i = 0; i < sums.size(); ++i) y[i] = sums[i] + (residual ? residual[i] : 0.0f);
}

void LayerNorm(ConstView x, float eps, View y) {
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* const row = x.row(r);
    const double count = static_cast<double>(x.cols);
    double mean = 0;
    for (int64_t i = 0; i < x.cols; ++i) mean += row[i];
    mean /= count;
    double variance = 0;
    for (int64_t i = 0; i < x.cols; ++i) variance += (row[i] - mean) * (row[i] - mean);
    variance /= count;
    for (int64_t i = 0; i < x.cols; ++i) {
      y.row(r)[i] = static_cast<float>((row[i] - mean) / std::sqrt(variance + eps));
    }
  }
}

void LayerNorm(ConstView x, const float* weight, const float* bias, float eps, View y) {
  LayerNorm(x, eps, y);
  Map(
      y, [&](int64_t c, double v) { return v * weight[c] + bias[c]; }, y);
}

void RmsNorm(ConstView x, const float* weight, float eps, View y) {
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* const row = x.row(r);
    const double root = std::sqrt(Dot(row, row, x.cols) / static_cast<double>(x.cols) + eps);
    for (int64_t i = 0; i < x.cols; ++i) y.row(r)[i] = static_cast<float>(row[i] / root * weight[i]);
  }
}

void RmsNormHeads(View x, const float* weight, int64_t head_dim, float eps) {
  for (int64_t first = 0; first < x.cols; first += head_dim) {
    const View head = x.Cols(first, head_dim);
    RmsNorm(head, weight, eps, head);
  }
}

void ChannelNorm(ConstView x, const float* gamma, View y) {
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* const row = x.row(r);
    const double norm = std::max(std::sqrt(Dot(row, row, x.cols)), 1e-12);
    const double factor = std::sqrt(static_cast<double>(x.cols)) / norm;
    for (int64_t i = 0; i < x.cols; ++i) y.row(r)[i] = static_cast<float>(row[i] * factor * gamma[i]);
  }
}

void Modulate(ConstView x, const float* scale, const float* shift, View y) {
  Map(
      y, [&](int64_t c, double v) { return v * (1.0 + scale[c]) + shift[c]; }, x);
}

void LayerNormModulate(ConstView x, float eps, const float* scale, const float* shift, View y) {
  LayerNorm(x, eps, y);
  Modulate(y, scale, shift, y);
}

void AddGated(ConstView x, const float* gate, View y) {
  Map(
      y, [&](int64_t c, double v, double sum) { return sum + gate[c] * v; }, x, y);
}

void Add(ConstView a, ConstView b, View y) {
  Map(
      y, [](int64_t, float u, float v) { return u + v; }, a, b);
}

void Silu(ConstView x, View y) {
  Map(
      y, [](int64_t, double v) { return SiluOf(v); }, x);
}

void SiluMul(ConstView gate, ConstView up, View y) {
  Map(
      y, [](int64_t, double g, double u) { return SiluOf(g) * u; }, gate, up);
}

void GeluTanh(ConstView x, View y) {
  const auto gelu = [](int64_t, double v) {
    const double inner = std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v);
    // 1 + tanh(u) = 2 / (1 + exp(-2u)), without the cancellation at negative u
    return inner < -350 ? v * 0.0 : v / (1 + std::exp(-2 * inner));
  };
  Map(y, gelu, x);
}

void Gelu(ConstView x, View y) {
  Map(
      y, [](int64_t, double v) { return 0.5 * v * std::erfc(-v / std::numbers::sqrt2); }, x);
}

void RopeInterleaved(View x, const RopeAngles& angles) {
  const int64_t half = angles.head_dim / 2;
  for (int64_t t = 0; t < x.rows; ++t) {
    float* const row = x.row(t);
    for (int64_t i = 0; i < x.cols / 2; ++i) {
      const double c = angles.cos[t * half + i % half], s = angles.sin[t * half + i % half];
      const double a = row[2 * i], b = row[2 * i + 1];
      row[2 * i] = static_cast<float>(a * c - b * s);
      row[2 * i + 1] = static_cast<float>(a * s + b * c);
    }
  }
}

void RmsNormRope(View x, const float* weight, float eps, const RopeAngles& angles) {
  RmsNormHeads(x, weight, angles.head_dim, eps);
  RopeInterleaved(x, angles);
}

void RopeHalves(View x, const RopeAngles& angles) {
  const int64_t half = angles.head_dim / 2;
  for (int64_t t = 0; t < x.rows; ++t) {
    for (float* head = x.row(t); head < x.row(t) + x.cols; head += angles.head_dim) {
      for (int64_t i = 0; i < half; ++i) {
        const double c = angles.cos[t * half + i], s = angles.sin[t * half + i];
        const double a = head[i], b = head[half + i];
        head[i] = static_cast<float>(a * c - b * s);
        head[half + i] = static_cast<float>(a * s + b * c);
      }
    }
  }
}

void RmsNormRopeHalves(View x, const float* weight, float eps, const RopeAngles& angles) {
  RmsNormHeads(x, weight, angles.head_dim, eps);
  RopeHalves(x, angles);
}

}  // namespace qwen_image::reference
