// Arm with dot products (Armv8.2 and later, all Apple chips). The four rows of a tile stand in one register
// of activations, from which the instruction picks a row. With i8mm weights may be unsigned; the older
// instruction wants both sides signed.
#include "kernels/int8/tile.h"

#if defined(__aarch64__)
#include <arm_neon.h>

namespace qwen_image {
namespace {

constexpr int kRows = 4;
constexpr int kVectors = kInt8PanelCols / 4;

__attribute__((always_inline)) inline void AddGroup(const Int8Rows& x, const Int8Panel& w, int64_t g,
                                                    int rows, const int32x4_t (&dot)[kRows][kVectors],
                                                    float* sums) {
  for (int v = 0; v < kVectors; ++v) {
    const float32x4_t scale = vld1q_f32(w.scales + g * kInt8PanelCols + 4 * v);
    const float32x4_t bias = vld1q_f32(w.biases + g * kInt8PanelCols + 4 * v);
    for (int r = 0; r < rows; ++r) {
      float* const to = sums + r * kInt8PanelCols + 4 * v;
      const float32x4_t both = vmulq_n_f32(scale, x.scales[g * kRows + r]);
      const float32x4_t sum = vfmaq_f32(vld1q_f32(to), vcvtq_f32_s32(dot[r][v]), both);
      vst1q_f32(to, vfmaq_n_f32(sum, bias, x.sums[g * kRows + r]));
    }
  }
}

__attribute__((always_inline)) inline void Begin(const Int8Panel& w, int64_t g,
                                                 int32x4_t (&dot)[kRows][kVectors]) {
  for (int v = 0; v < kVectors; ++v) {
    const int32x4_t start = w.starts ? vld1q_s32(w.starts + g * kInt8PanelCols + 4 * v) : vdupq_n_s32(0);
    for (int r = 0; r < kRows; ++r) dot[r][v] = start;
  }
}

inline void Clear(float* sums, int rows) {
  for (int i = 0; i < rows * kInt8PanelCols; ++i) sums[i] = 0.0f;
}

__attribute__((target("arch=armv8.2-a+dotprod"))) void MultiplySigned(const Int8Tile& t, int panel) {
  const Int8Panel& w = t.w[panel];
  float* const sums = t.sums + panel * kRows * kInt8PanelCols;
  const int8_t* a = t.x.a;
  const auto* q = reinterpret_cast<const int8_t*>(w.q);
  if (!t.add) Clear(sums, t.rows);
  NextActivations next(t, panel, kRows);
  for (int64_t g = 0; g < t.groups; ++g) {
    next.FetchShare();
    int32x4_t dot[kRows][kVectors];
    Begin(w, g, dot);
    for (int k = 0; k < t.group; k += 4, q += 4 * kInt8PanelCols, a += 4 * kRows) {
      const int8x16_t activations = vld1q_s8(a);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const int8x16_t weights = vld1q_s8(q + 16 * v);
        dot[0][v] = vdotq_laneq_s32(dot[0][v], weights, activations, 0);
        dot[1][v] = vdotq_laneq_s32(dot[1][v], weights, activations, 1);
        dot[2][v] = vdotq_laneq_s32(dot[2][v], weights, activations, 2);
        dot[3][v] = vdotq_laneq_s32(dot[3][v], weights, activations, 3);
      }
    }
    AddGroup(t.x, w, g, t.rows, dot, sums);
  }
}

__attribute__((target("arch=armv8.2-a+dotprod+i8mm"))) void MultiplyMixed(const Int8Tile& t, int panel) {
  const Int8Panel& w = t.w[panel];
  float* const sums = t.sums + panel * kRows * kInt8PanelCols;
  const int8_t* a = t.x.a;
  const auto* q = w.q;
  if (!t.add) Clear(sums, t.rows);
  NextActivations next(t, panel, kRows);
  for (int64_t g = 0; g < t.groups; ++g) {
    next.FetchShare();
    int32x4_t dot[kRows][kVectors];
    Begin(w, g, dot);
    for (int k = 0; k < t.group; k += 4, q += 4 * kInt8PanelCols, a += 4 * kRows) {
      const int8x16_t activations = vld1q_s8(a);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const uint8x16_t weights = vld1q_u8(q + 16 * v);
        dot[0][v] = vusdotq_laneq_s32(dot[0][v], weights, activations, 0);
        dot[1][v] = vusdotq_laneq_s32(dot[1][v], weights, activations, 1);
        dot[2][v] = vusdotq_laneq_s32(dot[2][v], weights, activations, 2);
        dot[3][v] = vusdotq_laneq_s32(dot[3][v], weights, activations, 3);
      }
    }
    AddGroup(t.x, w, g, t.rows, dot, sums);
  }
}

template <void (*kMultiply)(const Int8Tile& t, int panel)>
void EachPanel(const Int8Tile& t) {
  for (int panel = 0; panel < t.panels; ++panel) kMultiply(t, panel);
}

}  // namespace

const Int8Kernel kInt8NeonDot = {"NEON dotprod", Int8Weights::kSigned, kRows, EachPanel<MultiplySigned>,
                                 true};
const Int8Kernel kInt8NeonI8mm = {"NEON i8mm", Int8Weights::kUnsigned, kRows, EachPanel<MultiplyMixed>, true};

}  // namespace qwen_image
#endif
