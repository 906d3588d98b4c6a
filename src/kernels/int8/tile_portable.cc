// Plain C++, for machines without any of the others.
#include "kernels/int8/tile.h"

namespace qwen_image {
namespace {

constexpr int kRows = 4;

void MultiplyRows(const Int8Rows& x, const Int8Panel& w, int64_t groups, int group, int /*planes*/, int rows,
                  bool add, float* sums) {
  const int8_t* a = x.a;
  const uint8_t* q = w.q;
  for (int i = 0; !add && i < rows * kInt8PanelCols; ++i) sums[i] = 0.0f;
  for (int64_t g = 0; g < groups; ++g) {
    int32_t dot[kRows][kInt8PanelCols] = {};
    for (int k = 0; k < group; k += 4) {
      for (int r = 0; r < rows; ++r) {
        for (int c = 0; c < kInt8PanelCols; ++c) {
          for (int i = 0; i < 4; ++i) dot[r][c] += q[4 * c + i] * a[4 * r + i];
        }
      }
      q += 4 * kInt8PanelCols;
      a += 4 * kRows;
    }
    for (int r = 0; r < rows; ++r) {
      const float scale = x.scales[g * kRows + r], sum = x.sums[g * kRows + r];
      for (int c = 0; c < kInt8PanelCols; ++c) {
        const int64_t at = g * kInt8PanelCols + c;
        sums[r * kInt8PanelCols + c] +=
            static_cast<float>(dot[r][c]) * (w.scales[at] * scale) + w.biases[at] * sum;
      }
    }
  }
}

void Dot(const Int8Dots& d) {
  int32_t* to = d.sums;
  for (int64_t panel = 0; panel < d.panels; ++panel) {
    const int8_t* a = d.a;
    const uint8_t* q = d.q + panel * d.panel_bytes;
    for (int64_t g = 0; g < d.groups; ++g, to += kRows * kInt8PanelCols) {
      for (int i = 0; i < d.rows * kInt8PanelCols; ++i) to[i] = d.start[g * kRows + i / kInt8PanelCols];
      for (int64_t k = 0; k < d.group; k += 4, q += 4 * kInt8PanelCols, a += 4 * kRows) {
        for (int r = 0; r < d.rows; ++r) {
          for (int c = 0; c < kInt8PanelCols; ++c) {
            for (int i = 0; i < 4; ++i) to[r * kInt8PanelCols + c] += q[4 * c + i] * a[4 * r + i];
          }
        }
      }
    }
  }
}

}  // namespace

const Int8Kernel kInt8Portable = {"plain C++", Int8Weights::kUnsigned, kRows, MultiplyRows, Dot};

}  // namespace qwen_image
