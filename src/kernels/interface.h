// The arithmetic of the models, behind plain signatures: no SIMD type leaves this folder. The instruction set
// is chosen at run time. Every kernel has a slow twin in reference.h that its test compares it with.
//
// Activations are views of rows of floats: a slice of tokens or of heads has the bits that it has in the
// whole. Only convolutions take dense memory. The results do not depend on the number of threads of `pool`.
// Unless said otherwise the output may not overlap the input.
#pragma once

#include <cstdint>
#include <string>

#include "core/tensor.h"
#include "core/threads.h"
#include "core/view.h"
#include "kernels/weight_matrix.h"

namespace qwen_image {

// y = x · wᵀ + bias, in fp32 arithmetic. A row's result does not depend on the rows it is multiplied with.
void MatMul(ConstView x /*[rows, w.cols]*/, const WeightMatrix& w, const float* bias /*[w.rows] or null*/,
            View y /*[rows, w.rows]*/, ThreadPool& pool);

// y += x · wᵀ, the same way.
void AddMatMul(ConstView x /*[rows, w.cols]*/, const WeightMatrix& w, View y /*[rows, w.rows]*/,
               ThreadPool& pool);

// The heads of a token are contiguous; how many tokens there are the views say.
struct AttentionShape {
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads; query head h reads kv head h / (heads / kv_heads)
  int64_t head_dim = 0;
  // The queries are the last of the keys' tokens: the last one sees all keys, the one before it one less, ….
  bool causal = false;
};

// out[i, h] = Σ_j softmax_j(q[i, h] · k[j, h'] / √head_dim) · v[j, h'], without a queries × keys matrix in
// memory.
void Attention(ConstView q /*[queries, heads · head_dim]*/, ConstView k /*[keys, kv_heads · head_dim]*/,
               ConstView v /*[keys, kv_heads · head_dim]*/, const AttentionShape& shape,
               View out /*[queries, heads · head_dim]*/, ThreadPool& pool);

// For looking into an attention, not for running one: its weights softmax_j(q[i, h] · k[j, h'] / √head_dim),
// …
void AttentionWeights(ConstView q /*[queries, heads · head_dim]*/,
                      ConstView k /*[keys, kv_heads · head_dim]*/, const AttentionShape& shape,
                      float* weights /*[heads, queries, keys]*/, ThreadPool& pool);
// … and each head's entropy as a share of the largest possible, log(keys): 0 is one key, 1 is all keys alike.
// The mean over at most `max_queries` evenly spread queries.
void AttentionEntropy(ConstView q /*[queries, heads · head_dim]*/,
                      ConstView k /*[keys, kv_heads · head_dim]*/, const AttentionShape& shape,
                      int64_t max_queries, float* entropy /*[heads]*/, ThreadPool& pool);

struct Conv2dShape {
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  int64_t height = 0;  // of the input
  int64_t width = 0;
  int64_t kernel = 3;  // square
  int64_t stride = 1;
  int64_t pad_before = 0;  // zeros above and to the left
  int64_t pad_after = 0;   // zeros below and to the right
  int64_t out_height() const { return (height + pad_before + pad_after - kernel) / stride + 1; }
  int64_t out_width() const { return (width + pad_before + pad_after - kernel) / stride + 1; }
};

// Channels-last convolution by implicit matrix product (no im2col of the whole picture).
void Conv2d(const float* x /*[height, width, in]*/, const Conv2dShape& shape,
            const float* weight /*[out, kernel, kernel, in]*/, const float* bias /*[out]*/,
            float* y /*[out_height, out_width, out]*/, ThreadPool& pool);

// 3 × 3, stride 1, one zero around the picture: by Winograd's method, with a quarter of the multiplications.
// Rounding errors are those of the tile of 4 × 4 outputs: about √10 times those of a direct convolution, and
// a NaN reaches all of its tile.
struct Conv3x3Shape {
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  int64_t height = 0;  // of the input
  int64_t width = 0;
  bool upsample = false;  // first every pixel becomes 2 × 2 equal ones (torch's nearest-exact)
  int64_t out_height() const { return upsample ? 2 * height : height; }
  int64_t out_width() const { return upsample ? 2 * width : width; }
};

// A filter's weights in the form that is multiplied with, four times as large as they are. It belongs to the
// instruction set in use.
class Conv3x3Filter {
 public:
  // Of several temporal slices the last one counts. Uses the memory of the filter before, if it is enough and
  // not more than four times that.
  void Set(const WeightMatrix& weight /*[out, in · slices · 3 · 3]*/, int64_t in_channels, bool upsample,
           ThreadPool& pool);
  const float* data() const { return memory_.data(); }

 private:
  Tensor memory_;
};

struct Conv3x3Input {
  const float* x = nullptr;  // [rows, width, in]
  int64_t first_row = 0;     // of the picture, that x begins with
  // If there, the convolution sees SiLU(ChannelNorm(x)): the same bits as by those two kernels.
  const float* norm_gamma = nullptr;  // [in]
};

struct Conv3x3Output {
  const float* bias = nullptr;         // [out]
  const float* residual = nullptr;     // [rows, out_width, out]: added to the result, if there; may be y
  float* y = nullptr;                  // [rows, out_width, out]
  int64_t first_row = 0;               // of the output picture, that y and residual begin with
  int64_t row_begin = 0, row_end = 0;  // what to compute: whole tiles of 4 rows, or up to the last row
};

// The result does not depend on the rows it is computed with; x must hold one row more on both sides of those
// it is computed from, where the picture has them. y may not overlap x.
void Conv3x3(const Conv3x3Shape& shape, const Conv3x3Filter& filter, const Conv3x3Input& input,
             const Conv3x3Output& output, ThreadPool& pool);

// Row-wise normalisations of x [rows, cols] into y of the same shape, which may be x.
// (x − mean) / √(variance + eps)
void LayerNorm(ConstView x, float eps, View y, ThreadPool& pool);
// The same, then · weight + bias; in one pass over memory.
void LayerNorm(ConstView x, const float* weight /*[cols]*/, const float* bias /*[cols]*/, float eps, View y,
               ThreadPool& pool);
// x / √(mean(x²) + eps) · weight
void RmsNorm(ConstView x, const float* weight /*[cols]*/, float eps, View y, ThreadPool& pool);
// The same for every head of a token, in place.
void RmsNormHeads(View x /*[tokens, heads · head_dim]*/, const float* weight /*[head_dim]*/, int64_t head_dim,
                  float eps, ThreadPool& pool);
// x / max(‖x‖, 1e-12) · √cols · gamma: the VAE's norm over the channels of a pixel
void ChannelNorm(ConstView x, const float* gamma /*[cols]*/, View y, ThreadPool& pool);

// Element-wise, all views [rows, cols]; y may be an input.
// x · (1 + scale) + shift
void Modulate(ConstView x, const float* scale /*[cols]*/, const float* shift /*[cols]*/, View y,
              ThreadPool& pool);
// LayerNorm, then Modulate, in one pass over memory; the same bits as the two one by one.
void LayerNormModulate(ConstView x, float eps, const float* scale /*[cols]*/, const float* shift /*[cols]*/,
                       View y, ThreadPool& pool);
// y += gate · x
void AddGated(ConstView x, const float* gate /*[cols]*/, View y, ThreadPool& pool);
void Add(ConstView a, ConstView b, View y, ThreadPool& pool);
void Silu(ConstView x, View y, ThreadPool& pool);
// silu(gate) · up
void SiluMul(ConstView gate, ConstView up, View y, ThreadPool& pool);
// 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))
void GeluTanh(ConstView x, View y, ThreadPool& pool);
// x·(1 + erf(x/√2))/2, one number at a time: for few numbers
void Gelu(ConstView x, View y, ThreadPool& pool);

// Rotary position embeddings, in place. The angles are those of x's tokens.
struct RopeAngles {
  const float* cos = nullptr;  // [tokens, head_dim / 2]
  const float* sin = nullptr;  // the same
  int64_t head_dim = 0;
};
// Pairs are neighbours (2i, 2i + 1): the transformer's complex numbers.
void RopeInterleaved(View x /*[tokens, heads · head_dim]*/, const RopeAngles& angles, ThreadPool& pool);
// RmsNormHeads, then RopeInterleaved, in one pass over memory; the same bits as the two one by one.
void RmsNormRope(View x /*[tokens, heads · head_dim]*/, const float* weight /*[head_dim]*/, float eps,
                 const RopeAngles& angles, ThreadPool& pool);
// Pairs are halves (i, i + head_dim / 2): the text encoder's rotate_half.
void RopeHalves(View x /*[tokens, heads · head_dim]*/, const RopeAngles& angles, ThreadPool& pool);
// RmsNormHeads, then RopeHalves, in one pass over memory; the same bits as the two one by one.
void RmsNormRopeHalves(View x /*[tokens, heads · head_dim]*/, const float* weight /*[head_dim]*/, float eps,
                       const RopeAngles& angles, ThreadPool& pool);

// The instruction set in use, e.g. "AVX2", for reports.
std::string InstructionSet();

}  // namespace qwen_image
