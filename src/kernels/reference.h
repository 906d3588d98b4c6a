// The slow truth of every kernel of kernels.h: plain loops, sums in double, one thread.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace qwen_image::reference {

void MatMul(const float* x, int64_t rows, const WeightMatrix& w, const float* bias, float* y);
void Attention(const float* q, const float* k, const float* v, const AttentionShape& shape, float* out);
void Conv2d(const float* x, const Conv2dShape& shape, const float* weight, const float* bias, float* y);
// The whole picture, y may be the residual.
void Conv3x3(const Conv3x3Shape& shape, const WeightMatrix& weight, const Conv3x3Input& input,
             const float* bias, const float* residual, float* y);

void LayerNorm(const float* x, int64_t rows, int64_t cols, float eps, float* y);
void RmsNorm(const float* x, int64_t rows, int64_t cols, const float* weight, float eps, float* y);
void ChannelNorm(const float* x, int64_t rows, int64_t cols, const float* gamma, float* y);

void Modulate(const float* x, int64_t rows, int64_t cols, const float* scale, const float* shift, float* y);
void LayerNormModulate(const float* x, int64_t rows, int64_t cols, float eps, const float* scale,
                       const float* shift, float* y);
void AddGated(const float* x, int64_t rows, int64_t cols, const float* gate, float* y);
void Add(const float* a, const float* b, int64_t count, float* y);
void Silu(const float* x, int64_t count, float* y);
void SiluMul(const float* gate, const float* up, int64_t count, float* y);
void GeluTanh(const float* x, int64_t count, float* y);
void Gelu(const float* x, int64_t count, float* y);

void RopeInterleaved(float* x, int64_t tokens, int64_t heads, int64_t head_dim, const float* cos,
                     const float* sin);
void RmsNormRope(float* x, int64_t tokens, int64_t heads, int64_t head_dim, const float* weight, float eps,
                 const float* cos, const float* sin);
void RopeHalves(float* x, int64_t tokens, int64_t heads, int64_t head_dim, const float* cos,
                const float* sin);

}  // namespace qwen_image::reference
