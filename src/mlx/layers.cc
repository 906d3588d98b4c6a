#include "mlx/layers.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <numbers>

#include "kernels/mlx_groups.h"
#include "mlx/weight_forms.h"

namespace qwen_image::on_mlx {
namespace {

mx::Dtype TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return mx::float16;
    case DType::kBF16:
      return mx::bfloat16;
    default:
      return mx::float32;
  }
}

// Bytes of a file, which may be unaligned, as an array of their own.
array CopyBytes(const void* data, const Shape& shape, mx::Dtype dtype) {
  const mx::Shape dims = ShapeOf(shape);
  const size_t bytes = static_cast<size_t>(ElementCount(shape)) * mx::size_of(dtype);
  mx::allocator::Buffer buffer = mx::allocator::malloc(bytes);
  std::memcpy(buffer.raw_ptr(), data, bytes);
  return array(buffer, dims, dtype);
}

array Decoded(const WeightMatrix& w, mx::Dtype activations) {
  Tensor values({w.rows, w.cols});
  for (int64_t row = 0; row < w.rows; ++row) DecodeRow(w, row, 0, w.cols, values.row(row));
  array x = mx::astype(ToDevice(values), activations);
  x.eval();
  return x;
}

struct Packed {
  array weight, scales, biases;
  int group_size, bits;
};

Packed AsInFile(const MlxGroups& groups, int64_t rows, int64_t cols) {
  const Shape groups_shape = {rows, cols / groups.group_size};
  return {CopyBytes(groups.packed, {rows, cols * groups.bits / 32}, mx::uint32),
          CopyBytes(groups.scales, groups_shape, TypeOf(groups.scales_dtype)),
          CopyBytes(groups.biases, groups_shape, TypeOf(groups.biases_dtype)), groups.group_size,
          groups.bits};
}

// Blocks of another tool whose values are scale · q + bias: the same values in MLX's form.
Packed Regrouped(const WeightMatrix& w, int bits, int group) {
  const int64_t units = w.cols / w.coding->unit(), groups = w.cols / group;
  std::vector<uint8_t> q(static_cast<size_t>(w.cols));
  std::vector<uint8_t> packed(static_cast<size_t>(w.rows * w.cols * bits / 8));
  Tensor scales({w.rows, groups}), biases({w.rows, groups});
  for (int64_t row = 0; row < w.rows; ++row) {
    w.coding->Unpack(w.Units(row * units), row, row * units, units, q.data(), scales.row(row),
                     biases.row(row));
    uint8_t* to = packed.data() + row * w.cols * bits / 8;
    for (int64_t i = 0; i < w.cols; ++i) {
      const uint8_t value = q[static_cast<size_t>(i)];
      if (bits == 8) {
        to[i] = value;
      } else {
        to[i / 2] = static_cast<uint8_t>(i % 2 == 0 ? value : to[i / 2] | value << 4);
      }
    }
  }
  return {CopyBytes(packed.data(), {w.rows, w.cols * bits / 32}, mx::uint32), ToDevice(scales),
          ToDevice(biases), group, bits};
}

std::optional<Packed> PackedOf(const WeightMatrix& w) {
  const MlxForm form = MlxFormOf(w);
  if (form.bits == 0) return {};
  return form.kind == MlxForm::Kind::kRegrouped ? Regrouped(w, form.bits, form.group_size)
                                                : AsInFile(*w.coding->mlx(), w.rows, w.cols);
}

array WholeOf(const WeightMatrix& w, mx::Dtype activations) {
  return w.coding ? Decoded(w, activations) : CopyBytes(w.data, {w.rows, w.cols}, TypeOf(w.dtype));
}

// Rotates the pairs of two arrays [1, tokens, heads, head_dim / 2] in float32 and joins them along `axis`
// into an array like `x`.
array Rotated(const array& first, const array& second, const array& cos, const array& sin, int axis,
              const array& x) {
  const array c = mx::expand_dims(cos, {0, 2}), s = mx::expand_dims(sin, {0, 2});  // for all heads
  const array joined = mx::stack({first * c - second * s, second * c + first * s}, axis);
  return mx::astype(mx::reshape(joined, x.shape()), x.dtype());
}

}  // namespace

Linear::Linear(const qwen_image::Linear& weights) : weight_(0.0f) {
  const mx::Dtype activations = ActivationsOf(weights.precision);
  if (std::optional<Packed> packed = PackedOf(weights.weight)) {
    weight_ = packed->weight;
    scales_ = packed->scales;
    biases_ = packed->biases;
    group_size_ = packed->group_size;
    bits_ = packed->bits;
  } else {
    weight_ = WholeOf(weights.weight, activations);
  }
  if (!weights.bias.empty()) {
    bias_ = mx::astype(ToDevice(weights.bias), activations);
    // On the thread that asked: a pass that is stopped leaves nothing behind to be computed by others.
    bias_->eval();
  }
  for (const LowRankUpdate& update : weights.updates)
    updates_.push_back({WholeOf(update.down, activations), WholeOf(update.up, activations), update.factor});
}

array Linear::operator()(const array& x) const {
  array y = scales_ ? mx::quantized_matmul(x, weight_, *scales_, biases_, true, group_size_, bits_)
                    : mx::matmul(x, mx::transpose(weight_));
  if (bias_) y = y + *bias_;
  for (const Update& update : updates_) {
    const array hidden = mx::matmul(x, mx::transpose(update.down)) * array(update.factor);
    y = y + mx::matmul(mx::astype(hidden, x.dtype()), mx::transpose(update.up));
  }
  return mx::astype(y, x.dtype());
}

std::string Linear::Form() const {
  std::string form = fmt::format("{}/{}{}", bits_, group_size_, bias_ ? "+" : "");
  for (const Update& update : updates_) form += fmt::format("~{}", update.factor);
  return form;
}

void Linear::Visit(const std::function<void(array&)>& visit) {
  visit(weight_);
  for (std::optional<array>* part : {&scales_, &biases_, &bias_})
    if (*part) visit(**part);
  for (Update& update : updates_) {
    visit(update.down);
    visit(update.up);
  }
}

array Silu(const array& x) { return x * mx::sigmoid(x); }

array GeluTanh(const array& x) {
  const auto constant = [&](double value) { return array(static_cast<float>(value), x.dtype()); };
  const array inner = constant(std::sqrt(2.0 / std::numbers::pi)) * (x + constant(0.044715) * x * x * x);
  return constant(0.5) * x * (constant(1.0) + mx::tanh(inner));
}

array Gelu(const array& x) {
  const auto constant = [&](double value) { return array(static_cast<float>(value), x.dtype()); };
  return constant(0.5) * x * (constant(1.0) + mx::erf(x * constant(1.0 / std::numbers::sqrt2)));
}

array RopeInterleaved(const array& x, const array& cos, const array& sin) {
  mx::Shape pairs = x.shape();
  pairs.back() /= 2;
  pairs.push_back(2);
  const std::vector<array> parts = mx::split(mx::reshape(x, pairs), 2, -1);
  return Rotated(mx::squeeze(parts[0], -1), mx::squeeze(parts[1], -1), cos, sin, -1, x);
}

array RopeHalves(const array& x, const array& cos, const array& sin) {
  const std::vector<array> parts = mx::split(x, 2, -1);
  return Rotated(parts[0], parts[1], cos, sin, -2, x);
}

array Attention(const array& q, const array& k, const array& v, Mask mask) {
  const auto heads_first = [](const array& x) { return mx::transpose(x, {0, 2, 1, 3}); };
  const float scale = 1.0f / std::sqrt(static_cast<float>(q.shape(3)));
  const array attended = mx::fast::scaled_dot_product_attention(
      heads_first(q), heads_first(k), heads_first(v), scale, mask == Mask::kCausal ? "causal" : "");
  return mx::reshape(heads_first(attended), {1, q.shape(1), q.shape(2) * q.shape(3)});
}

}  // namespace qwen_image::on_mlx
