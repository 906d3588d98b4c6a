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

void MatMul(const float* x, int64_t rows, const WeightMatrix& w, const float* bias, float* y) {
  std::vector<float> weights(static_cast<size_t>(w.cols));
  for (int64_t n = 0; n < w.rows; ++n) {
    DecodeRow(w, n, 0, w.cols, weights.data());
    for (int64_t m = 0; m < rows; ++m) {
      y[m * w.rows + n] =
          static_cast<float>(Dot(x + m * w.cols, weights.data(), w.cols) + (bias ? bias[n] : 0.0f));
    }
  }
}

void Attention(const float* q, const float* k, const float* v, const AttentionShape& s, float* out) {
  std::vector<double> weights(static_cast<size_t>(s.keys));
  for (int64_t i = 0; i < s.queries; ++i) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t kv_offset = h / (s.heads / s.kv_heads) * s.head_dim;
      const int64_t keys = s.causal ? i + 1 : s.keys;
      double largest = -std::numeric_limits<double>::infinity();
      for (int64_t j = 0; j < keys; ++j) {
        const double dot =
            Dot(q + i * s.q_stride + h * s.head_dim, k + j * s.kv_stride + kv_offset, s.head_dim);
        weights[j] = dot / std::sqrt(static_cast<double>(s.head_dim));
        largest = std::max(largest, weights[j]);
      }
      double sum = 0;
      for (int64_t j = 0; j < keys; ++j) sum += weights[j] = std::exp(weights[j] - largest);
      for (int64_t d = 0; d < s.head_dim; ++d) {
        double value = 0;
        for (int64_t j = 0; j < keys; ++j) value += weights[j] * v[j * s.kv_stride + kv_offset + d];
        out[(i * s.heads + h) * s.head_dim + d] = static_cast<float>(value / sum);
      }
    }
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
    ChannelNorm(x.data(), s.height * s.width, s.in_channels, input.norm_gamma, x.data());
    Silu(x.data(), static_cast<int64_t>(x.size()), x.data());
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

void LayerNorm(const float* x, int64_t rows, int64_t cols, float eps, float* y) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    double mean = 0;
    for (int64_t i = 0; i < cols; ++i) mean += x[i];
    mean /= static_cast<double>(cols);
    double variance = 0;
    for (int64_t i = 0; i < cols; ++i) variance += (x[i] - mean) * (x[i] - mean);
    variance /= static_cast<double>(cols);
    for (int64_t i = 0; i < cols; ++i) y[i] = static_cast<float>((x[i] - mean) / std::sqrt(variance + eps));
  }
}

void RmsNorm(const float* x, int64_t rows, int64_t cols, const float* weight, float eps, float* y) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    const double root = std::sqrt(Dot(x, x, cols) / static_cast<double>(cols) + eps);
    for (int64_t i = 0; i < cols; ++i) y[i] = static_cast<float>(x[i] / root * weight[i]);
  }
}

void ChannelNorm(const float* x, int64_t rows, int64_t cols, const float* gamma, float* y) {
  for (int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    const double factor = std::sqrt(static_cast<double>(cols)) / std::max(std::sqrt(Dot(x, x, cols)), 1e-12);
    for (int64_t i = 0; i < cols; ++i) y[i] = static_cast<float>(x[i] * factor * gamma[i]);
  }
}

void Modulate(const float* x, int64_t rows, int64_t cols, const float* scale, const float* shift, float* y) {
  for (int64_t i = 0; i < rows * cols; ++i) {
    y[i] = static_cast<float>(x[i] * (1.0 + scale[i % cols]) + shift[i % cols]);
  }
}

void LayerNormModulate(const float* x, int64_t rows, int64_t cols, float eps, const float* scale,
                       const float* shift, float* y) {
  LayerNorm(x, rows, cols, eps, y);
  Modulate(y, rows, cols, scale, shift, y);
}

void AddGated(const float* x, int64_t rows, int64_t cols, const float* gate, float* y) {
  for (int64_t i = 0; i < rows * cols; ++i) {
    y[i] = static_cast<float>(y[i] + static_cast<double>(gate[i % cols]) * x[i]);
  }
}

void Add(const float* a, const float* b, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = a[i] + b[i];
}

void Silu(const float* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(SiluOf(x[i]));
}

void SiluMul(const float* gate, const float* up, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(SiluOf(gate[i]) * up[i]);
}

void GeluTanh(const float* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) {
    const double v = x[i];
    const double inner = std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v);
    // 1 + tanh(u) = 2 / (1 + exp(-2u)), without the cancellation at negative u
    y[i] = static_cast<float>(inner < -350 ? v * 0.0 : v / (1 + std::exp(-2 * inner)));
  }
}

void Gelu(const float* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) {
    const double v = x[i];
    y[i] = static_cast<float>(0.5 * v * std::erfc(-v / std::numbers::sqrt2));
  }
}

void RopeInterleaved(float* x, int64_t tokens, int64_t heads, int64_t head_dim, const float* cos,
                     const float* sin) {
  const int64_t half = head_dim / 2;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < heads * half; ++i) {
      const double c = cos[t * half + i % half], s = sin[t * half + i % half];
      const double a = x[2 * i], b = x[2 * i + 1];
      x[2 * i] = static_cast<float>(a * c - b * s);
      x[2 * i + 1] = static_cast<float>(a * s + b * c);
    }
    x += heads * head_dim;
  }
}

void RmsNormRope(float* x, int64_t tokens, int64_t heads, int64_t head_dim, const float* weight, float eps,
                 const float* cos, const float* sin) {
  RmsNorm(x, tokens * heads, head_dim, weight, eps, x);
  RopeInterleaved(x, tokens, heads, head_dim, cos, sin);
}

void RopeHalves(float* x, int64_t tokens, int64_t heads, int64_t head_dim, const float* cos,
                const float* sin) {
  const int64_t half = head_dim / 2;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < heads; ++h, x += head_dim) {
      for (int64_t i = 0; i < half; ++i) {
        const double c = cos[t * half + i], s = sin[t * half + i];
        const double a = x[i], b = x[half + i];
        x[i] = static_cast<float>(a * c - b * s);
        x[half + i] = static_cast<float>(a * s + b * c);
      }
    }
  }
}

}  // namespace qwen_image::reference
