#include "mlx/operations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mlx/values.h"
#include "ops/attention_taps.h"

namespace qwen_image::on_mlx {
namespace {

int Int(int64_t value) { return static_cast<int>(value); }

// [.., first…first + count, ..] along an axis from the end.
array Slice(const array& x, int axis_from_end, int64_t first, int64_t count) {
  mx::Shape begin(x.ndim(), 0), end = x.shape();
  const size_t axis = x.ndim() - static_cast<size_t>(axis_from_end);
  begin[axis] = Int(first);
  end[axis] = Int(first + count);
  return mx::slice(x, begin, end);
}

// A handle of the same kind without values.
Array Empty(const Array& like, size_t axis_from_end, int64_t size) {
  Array empty;
  empty.shape = like.shape;
  empty.shape[empty.shape.size() - axis_from_end] = size;
  return empty;
}

// One part of a modulation for the rows of an array: [1, cols], or [1, rows, cols] if they differ.
array PartOf(const Modulation& modulation, int64_t part, int64_t cols, bool by_row) {
  const array values = Slice(Of(*modulation.values), 1, part * cols, cols);
  if (modulation.spans.size() == 1 && !by_row) return Slice(values, 2, modulation.spans[0].row, 1);
  std::vector<array> rows;
  for (const ModulatedRows& span : modulation.spans)
    rows.push_back(
        mx::broadcast_to(mx::expand_dims(Slice(values, 2, span.row, 1), 0), {1, Int(span.count), Int(cols)}));
  return rows.size() == 1 ? rows[0] : mx::concatenate(rows, 1);
}

array Activated(Activation activation, const array& x) {
  switch (activation) {
    case Activation::kNone:
      break;
    case Activation::kGeluTanh:
      return GeluTanh(x);
    case Activation::kGelu:
      return Gelu(x);
  }
  return x;
}

void TapNamed(const Tap& tap, const char* name, array& x) {
  if (name) TapArray(tap, name, x);
}

// [1, tokens, heads · head_dim] or [tokens, …] → [1, tokens, heads, head_dim]
array Heads(const array& x, int64_t head_dim) {
  return mx::reshape(x, {1, x.shape(-2), Int(x.shape(-1) / head_dim), Int(head_dim)});
}

// The parts of a sequence as one, [1, tokens, heads, head_dim].
array Whole(const Joint& parts, int64_t head_dim) {
  std::vector<array> heads;
  for (const Array& part : parts) heads.push_back(Heads(Of(part), head_dim));
  return heads.size() == 1 ? heads[0] : mx::concatenate(heads, 1);
}

}  // namespace

void MlxOps::Run(const std::function<void()>& work) { RunOn(backend_.placement().device, work); }

Array MlxOps::New(const Shape& shape) {
  Array array;
  array.shape = shape;
  return array;
}

Joint MlxOps::PartsOf(const Array& memory, std::span<const int64_t> tokens) {
  Joint parts;
  for (const int64_t count : tokens) parts.push_back(Empty(memory, 2, count));
  return parts;
}

Array MlxOps::FromHost(const Tensor& x) { return Wrapped(ToDevice(x)); }

Tensor MlxOps::ToHost(const Array& x) { return on_mlx::ToHost(Of(x)); }

Array MlxOps::Rows(const Array& x, int64_t first, int64_t count) {
  return Wrapped(Slice(Of(x), 2, first, count));
}

Array MlxOps::Cols(const Array& x, int64_t first, int64_t count) {
  return x.values ? Wrapped(Slice(Of(x), 1, first, count)) : Empty(x, 1, count);
}

Array MlxOps::JoinRows(std::span<const Array> parts) {
  std::vector<array> arrays;
  for (const Array& part : parts) arrays.push_back(Of(part));
  return Wrapped(arrays.size() == 1 ? arrays[0] : mx::concatenate(arrays, -2));
}

Array MlxOps::JoinCols(std::span<const Array> parts) {
  std::vector<array> arrays;
  for (const Array& part : parts) arrays.push_back(Of(part));
  return Wrapped(mx::concatenate(arrays, -1));
}

Array MlxOps::Reshaped(const Array& x, const Shape& shape) {
  Array reshaped = New(shape);
  if (x.values) Set(reshaped, Of(x));
  return reshaped;
}

Array MlxOps::Reordered(const Array& x, std::span<const int64_t> order, int64_t unit) {
  const std::vector<int32_t> indices(order.begin(), order.end());
  const int groups = Int(static_cast<int64_t>(order.size()));
  const array by_group = mx::reshape(Of(x), {groups, Int(unit * x.cols())});
  Array reordered = New(x.shape);
  Set(reordered, mx::take(by_group, array(indices.data(), {groups}, mx::int32), 0));
  return reordered;
}

void MlxOps::Show(const Tap& tap, std::string_view name, Array& x) {
  if (!tap.Wants(name)) return;
  array seen = Of(x);
  TapArray(tap, name, seen);
  Set(x, seen);
}

Array MlxOps::Keep(const Array& x, Keeping keeping) {
  array kept = keeping == Keeping::kBfloat16 ? mx::astype(Of(x), mx::bfloat16) : mx::contiguous(Of(x));
  mx::eval(kept);  // what it was computed from need not stay
  return Wrapped(kept);
}

void MlxOps::Restore(const Array& kept, Array& x) { Set(x, Of(kept)); }

void MlxOps::Finish(std::span<Array* const> arrays) {
  std::vector<array> values;
  for (const Array* x : arrays) values.push_back(Of(*x));
  mx::eval(values);
}

const Linear& MlxOps::Get(const qwen_image::Linear& layer) {
  if (!compiling_) return backend_.Get(layer);
  const auto found = layer_arguments_.find(&layer);
  if (found == layer_arguments_.end())
    Fail(ErrorKind::kInternal, "a compiled part uses a layer that it does not name");
  return found->second;
}

const array& MlxOps::Get(const std::vector<float>& vector) {
  if (!compiling_) return backend_.Get(vector);
  const auto found = vector_arguments_.find(&vector);
  if (found == vector_arguments_.end())
    Fail(ErrorKind::kInternal, "a compiled part uses a weight that it does not name");
  return found->second;
}

void MlxOps::Multiply(const qwen_image::Linear& layer, const Array& x, Array& y) {
  Set(y, Get(layer)(Of(x)));
}

void MlxOps::RmsNorm(const std::vector<float>& weight, float eps, Array& x) {
  Set(x, mx::fast::rms_norm(Of(x), Get(weight), eps));
}

void MlxOps::LayerNorm(const std::vector<float>& weight, const std::vector<float>& bias, float eps,
                       Array& x) {
  Set(x, mx::fast::layer_norm(Of(x), Get(weight), Get(bias), eps));
}

void MlxOps::Silu(Array& x) { Set(x, on_mlx::Silu(Of(x))); }

void MlxOps::Tanh(Array& x) { Set(x, mx::tanh(Of(x))); }

void MlxOps::SiluMul(const Array& up, Array& gate) { Set(gate, on_mlx::Silu(Of(gate)) * Of(up)); }

void MlxOps::Add(const Array& x, Array& sum) { Set(sum, Of(sum) + mx::astype(Of(x), mx::float32)); }

void MlxOps::Project(const Projection& p, const Tap& tap) {
  array x = Of(*p.x);
  if (p.norm.kind == Norm::Kind::kLayer) {
    x = p.norm.bias ? mx::fast::layer_norm(x, Get(*p.norm.weight), Get(*p.norm.bias), p.norm.eps)
                    : mx::fast::layer_norm(x, {}, {}, p.norm.eps);
  }
  if (p.norm.kind == Norm::Kind::kRms) x = mx::fast::rms_norm(x, Get(*p.norm.weight), p.norm.eps);
  TapNamed(tap, p.norm.name, x);
  if (p.modulation.values) {
    const auto part = [&](int64_t which) { return PartOf(p.modulation, which, p.x->cols(), false); };
    x = x * (array(1.0f) + part(p.modulation.scale));
    if (p.modulation.shift != Modulation::kNone) x = x + part(p.modulation.shift);
    TapNamed(tap, p.modulated, x);
  }
  for (const Product& product : p.products) {
    array y = Get(*product.layer)(mx::astype(x, ActivationsOf(product.layer->precision)));
    TapNamed(tap, product.name, y);
    y = Activated(p.activation, y);
    TapNamed(tap, p.activated, y);
    Set(*product.y, y);
  }
}

void MlxOps::Project(std::span<const Projection> projections, const Tap& tap) {
  for (const Projection& p : projections) Project(p, tap);
}

void MlxOps::AddProjected(const GatedAddition& a, const Tap& tap) {
  array branch = Get(*a.layer)(Of(*a.x));
  for (const char* name : a.names) TapNamed(tap, name, branch);
  branch = mx::astype(branch, mx::float32);
  if (a.gate.values) {
    const bool shown = a.gate_name && tap.Wants(a.gate_name);
    array gate = PartOf(a.gate, a.gate.gate, a.sum->cols(), shown && a.gate.by_row);
    TapNamed(tap, a.gate_name, gate);
    branch = gate * branch;
  }
  Set(*a.sum, Of(*a.sum) + branch);
  if (a.sum_name) Show(tap, a.sum_name, *a.sum);
}

void MlxOps::AddProjected(std::span<const GatedAddition> additions, const Tap& tap) {
  for (const GatedAddition& a : additions) AddProjected(a, tap);
}

void MlxOps::AddGatedMlp(const GatedMlp& mlp, const Tap& tap) {
  Array gate = Empty(*mlp.x, 1, mlp.up->weight.rows), up = gate;
  Project({.x = mlp.x,
           .norm = mlp.norm,
           .modulation = mlp.modulation,
           .modulated = mlp.modulated,
           .products = {{mlp.gate_layer, mlp.gate_layer_name, &gate}, {mlp.up, mlp.up_name, &up}}},
          tap);
  SiluMul(up, gate);
  AddProjected({.x = &gate,
                .layer = mlp.down,
                .names = mlp.down_names,
                .gate = mlp.modulation,
                .gate_name = mlp.gate_name,
                .sum = mlp.sum,
                .sum_name = mlp.sum_name},
               tap);
}

void MlxOps::NormAndRotate(std::span<const NormRope> inputs, const Tap& tap) {
  for (const NormRope& n : inputs) {
    const array weight = Get(*n.weight);
    array x = Heads(Of(*n.x), weight.shape(0));
    x = mx::fast::rms_norm(x, mx::astype(weight, x.dtype()), n.eps);
    TapNamed(tap, n.norm, x);
    const auto rotate = n.pairs == NormRope::Pairs::kHalves ? RopeHalves : RopeInterleaved;
    x = rotate(x, Of(n.rope->cos), Of(n.rope->sin));
    TapNamed(tap, n.rotated, x);
    Set(*n.x, x);
  }
}

void MlxOps::RotateHalves(const Rope& rope, Array& x) {
  Set(x, RopeHalves(Heads(Of(x), 2 * rope.cos.cols()), Of(rope.cos), Of(rope.sin)));
}

void MlxOps::Attend(const AttentionInput& input, Joint& out, const Tap& tap) {
  const array q = Whole(*input.q, input.head_dim), k = Whole(*input.k, input.head_dim),
              v = Whole(*input.v, input.head_dim);
  if (WantsInside(input, tap)) {
    const Tensor query = on_mlx::ToHost(q), key = on_mlx::ToHost(k);
    const auto rows = [](const Tensor& x) { return ConstView(x.data(), x.dim(1), x.dim(2) * x.dim(3)); };
    ShowInside(input, rows(query), rows(key), compute_->pool, tap);
  }
  const auto mask = [](bool causal) { return causal ? Mask::kCausal : Mask::kNone; };
  std::vector<array> parts;
  if (input.spans.empty()) parts.push_back(Attention(q, k, v, mask(input.causal)));
  for (const AttentionSpan& span : input.spans) {
    const array keys = Slice(k, 3, span.first_key, span.keys),
                values = Slice(v, 3, span.first_key, span.keys);
    parts.push_back(Attention(Slice(q, 3, span.first_query, span.queries), keys, values, mask(span.causal)));
  }
  array attended = parts.size() == 1 ? parts[0] : mx::concatenate(parts, 1);
  TapNamed(tap, input.output, attended);
  int64_t first = 0;
  for (Array& part : out) {
    Set(part, Slice(attended, 2, first, part.rows()));
    first += part.rows();
  }
}

// All parts of one form share a compiled function, whose arguments are the state and the part's weights.
void MlxOps::RunCompiled(const CompiledPart& part, std::span<Array> state) {
  std::vector<array> arguments;
  for (const Array& x : state) arguments.push_back(Of(x));
  std::string form = fmt::format("{}", fmt::join(part.numbers, " "));
  for (const qwen_image::Linear* layer : part.layers) {
    Linear& on_device = backend_.Get(*layer);
    on_device.Visit([&](array& weight) { arguments.push_back(weight); });
    form += " " + on_device.Form();
  }
  for (const std::vector<float>* vector : part.vectors) arguments.push_back(backend_.Get(*vector));

  MlxBackend::Compiled& compiled = backend_.compiled(form);
  if (!compiled) {
    compiled = mx::compile([&backend = backend_, part, arrays = state.size()](const std::vector<array>& x) {
      MlxOps ops(backend, nullptr);
      ops.compiling_ = true;
      size_t next = arrays;
      for (const qwen_image::Linear* layer : part.layers) {
        Linear& argument = ops.layer_arguments_.emplace(layer, backend.Get(*layer)).first->second;
        argument.Visit([&](array& weight) { weight = x[next++]; });
      }
      for (const std::vector<float>* vector : part.vectors) ops.vector_arguments_.emplace(vector, x[next++]);
      std::vector<Array> inside;
      for (size_t i = 0; i < arrays; ++i) inside.push_back(Wrapped(x[i]));
      part.body(ops, inside);
      std::vector<array> changed;
      for (size_t i = 0; i < part.changed; ++i) changed.push_back(Of(inside[i]));
      return changed;
    });
  }
  const std::vector<array> changed = compiled(arguments);
  for (size_t i = 0; i < changed.size(); ++i) Set(state[i], changed[i]);
}

}  // namespace qwen_image::on_mlx
