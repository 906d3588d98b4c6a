// Linear layers on MLX, and the functions of one or two arrays that MLX does not have.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mlx/arrays.h"
#include "ops/linear.h"

namespace qwen_image::on_mlx {

// What flows between layers of this precision. The residual stream is always float32: it reaches ±4.5e7.
inline mx::Dtype ActivationsOf(Precision precision) {
  return precision == Precision::kFast ? mx::bfloat16 : mx::float32;
}

// torch.nn.Linear
class Linear {
 public:
  // Copies the weights from their file, in the form that MlxFormOf tells.
  explicit Linear(const qwen_image::Linear& weights);

  // x [.., in] → y [.., out], in the type of x.
  array operator()(const array& x) const;

  // For compiled functions, which take their weights as arguments: all arrays in a fixed order, and what a
  // function that was compiled for this layer expects of another beside the arrays' shapes and types.
  void Visit(const std::function<void(array&)>& visit);
  std::string Form() const;

 private:
  struct Update {
    array down, up;  // [rank, in], [out, rank]
    float factor;
  };

  array weight_;  // [out, in], or packed
  std::optional<array> scales_, biases_;
  int group_size_ = 0, bits_ = 0;
  std::optional<array> bias_;
  std::vector<Update> updates_;
};

array Silu(const array& x);
array GeluTanh(const array& x);
array Gelu(const array& x);

// Rotates pairs of x [1, tokens, heads, head_dim] by the angles of cos, sin [tokens, head_dim / 2]:
// neighbours (2i, 2i + 1), or i and i + head_dim / 2. MLX's own rope knows positions that count up, not
// tables for three axes.
array RopeInterleaved(const array& x, const array& cos, const array& sin);
array RopeHalves(const array& x, const array& cos, const array& sin);

enum class Mask { kNone, kCausal };
// q [1, queries, heads, head_dim], k and v [1, keys, kv_heads, head_dim] → [1, queries, heads · head_dim].
array Attention(const array& q, const array& k, const array& v, Mask mask = Mask::kNone);

}  // namespace qwen_image::on_mlx
