// The layers that all components share, on MLX: twins of model/layers.h and of the kernels behind it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mlx/arrays.h"
#include "model/layers.h"

namespace qwen_image::on_mlx {

// Where and in what type a component computes. Weights that are packed or half as wide stay so; `activations`
// is what flows between the layers of a block. The residual stream is always float32: it reaches ±4.5e7.
struct Placement {
  mx::Device device;
  mx::Dtype activations = mx::float32;  // float32 (exact) or bfloat16 (fast)
  bool keep_weights = false;            // on the device from picture to picture, not from use to use
};

// torch.nn.Linear
class Linear {
 public:
  // Copies the weights from their file, in the form that MlxFormOf tells.
  Linear(const qwen_image::Linear& weights, const Placement& placement);

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

// The layers of a stack on the device: each is copied when it is first asked for.
template <typename Layer>
class LazyLayers {
 public:
  template <typename Weights>
  const Layer& Load(const std::vector<Weights>& weights, size_t index, const Placement& placement) {
    layers_.resize(weights.size());
    if (!layers_[index]) layers_[index] = std::make_unique<Layer>(weights[index], placement);
    return *layers_[index];
  }
  void Clear() { layers_.clear(); }

 private:
  std::vector<std::unique_ptr<Layer>> layers_;
};

// A small vector of floats (a norm's weight) in the activations' type.
array VectorOf(const std::vector<float>& values, const Placement& placement);

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
