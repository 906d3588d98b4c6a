// Plain C++, for machines without any of the others.
#include <algorithm>

#include "kernels/int8/tile.h"

namespace qwen_image {
namespace {

constexpr int kRows = 4;

void MultiplyPanel(const Int8Tile& t, int panel) {
  const Int8Rows& x = t.x;
  const Int8Panel& w = t.w[panel];
  const int rows = t.rows;
  float* const sums = t.sums + panel * kRows * kInt8PanelCols;
  const int8_t* a = x.a;
  const uint8_t* q = w.q;
  for (int i = 0; !t.add && i < rows * kInt8PanelCols; ++i) sums[i] = 0.0f;
  NextActivations next(t, panel, kRows);
  for (int64_t g = 0; g < t.groups; ++g) {
    next.FetchShare();
    int32_t dot[kRows][kInt8PanelCols] = {};
    for (int r = 0; w.starts && r < rows; ++r)
      std::copy_n(w.starts + g * kInt8PanelCols, kInt8PanelCols, dot[r]);
    for (int k = 0; k < t.group; k += 4) {
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

void MultiplyRows(const Int8Tile& t) {
  for (int panel = 0; panel < t.panels; ++panel) MultiplyPanel(t, panel);
}

}  // namespace

const Int8Kernel kInt8Portable = {"plain C++", Int8Weights::kUnsigned, kRows, MultiplyRows, false};

}  // namespace qwen_image
