// The slow truth of every kernel of interface.h: plain loops, sums in double, one thread.
#pragma once

#include <cstdint>

#include "kernels/interface.h"

namespace qwen_image::reference {

void MatMul(ConstView x, const WeightMatrix& w, const float* bias, View y);
void AddMatMul(ConstView x, const WeightMatrix& w, View y);
void Attention(ConstView q, ConstView k, ConstView v, const AttentionShape& shape, View out);
void AttentionWeights(ConstView q, ConstView k, const AttentionShape& shape, float* weights);
void AttentionEntropy(ConstView q, ConstView k, const AttentionShape& shape, int64_t max_queries,
                      float* entropy);
void Conv2d(const float* x, const Conv2dShape& shape, const float* weight, const float* bias, float* y);
// The whole picture, y may be the residual.
void Conv3x3(const Conv3x3Shape& shape, const WeightMatrix& weight, const Conv3x3Input& input,
             const float* bias, const float* residual, float* y);

void LayerNorm(ConstView x, float eps, View y);
void LayerNorm(ConstView x, const float* weight, const float* bias, float eps, View y);
void RmsNorm(ConstView x, const float* weight, float eps, View y);
void RmsNormHeads(View x, const float* weight, int64_t head_dim, float eps);
void ChannelNorm(ConstView x, const float* gamma, View y);

void Modulate(ConstView x, const float* scale, const float* shift, View y);
void LayerNormModulate(ConstView x, float eps, const float* scale, const float* shift, View y);
void AddGated(ConstView x, const float* gate, View y);
void Add(ConstView a, ConstView b, View y);
void Silu(ConstView x, View y);
void SiluMul(ConstView gate, ConstView up, View y);
void GeluTanh(ConstView x, View y);
void Gelu(ConstView x, View y);

void RopeInterleaved(View x, const RopeAngles& angles);
void RmsNormRope(View x, const float* weight, float eps, const RopeAngles& angles);
void RopeHalves(View x, const RopeAngles& angles);
void RmsNormRopeHalves(View x, const float* weight, float eps, const RopeAngles& angles);

}  // namespace qwen_image::reference
