// Products with weights, and what is fused with them. With weights in up to 8 bits, norms and modulation are
// computed row by row as the rows are quantized; products end with their bias, GELU, gate and residual; and
// the products of all inputs run together. Where a listener wants a tensor inside, or a LoRA adds its own
// product in between, the steps run one by one: the same functions in the same order, so the bits are the
// same.
#include <algorithm>

#include "core/fail.h"
#include "kernels/rotated_int8.h"
#include "ops/cpu.h"

namespace qwen_image {
namespace {

// What is done to the inputs of products, in the profile.
constexpr const char* kPreparing = "norm_modulation_quantization";

bool Wants(const Tap& tap, const char* name) { return name && tap.Wants(name); }

const ModulatedRows& SpanOf(const Modulation& modulation, int64_t row) {
  return row < modulation.spans.back().begin ? modulation.spans.front() : modulation.spans.back();
}

void CheckModulation(const Modulation& modulation, std::initializer_list<int64_t> parts) {
  const bool spans = modulation.spans.size() == 1 || modulation.spans.size() == 2;
  if (!spans || std::min(parts) < 0)
    Fail(ErrorKind::kInternal, "a modulation of {} spans of rows, or without a part that is used",
         modulation.spans.size());
}

// A part of the modulation for these rows, [cols].
float* PartOf(const Modulation& modulation, const ModulatedRows& span, int64_t part, int64_t cols) {
  return modulation.values->view.row(span.row) + part * cols;
}

// One kernel computes it together with a modulation.
bool IsPlainLayerNorm(const Norm& norm) { return norm.kind == Norm::Kind::kLayer && !norm.bias; }

// Whether the product itself ends with the GELU.
bool FusesGelu(const Projection& p, const Product& product, const Tap& tap) {
  return p.activation == Activation::kGeluTanh && product.layer->int8_group > 0 &&
         product.layer->updates.empty() && !Wants(tap, product.name);
}

void Activate(Activation activation, View x, ThreadPool& pool) {
  switch (activation) {
    case Activation::kNone:
      break;
    case Activation::kGeluTanh:
      GeluTanh(x, x, pool);
      break;
    case Activation::kGelu:
      Gelu(x, x, pool);
      break;
  }
}

}  // namespace

Modulation Modulation::OfRows(int64_t first, int64_t count) const {
  Modulation part = *this;
  part.spans.clear();
  for (const ModulatedRows& span : spans) {
    const int64_t begin = std::max(span.begin, first), end = std::min(span.begin + span.count, first + count);
    if (begin < end) part.spans.push_back({begin - first, end - begin, span.row});
  }
  if (part.spans.empty() && !spans.empty()) part.spans.push_back({0, 0, spans.front().row});  // of no rows
  return part;
}

// Buffers in the order in which an operation asks for them: the same ones each time.
class CpuOps::Memory {
 public:
  explicit Memory(CpuOps& ops) : ops_(ops) {}

  View Floats(int64_t rows, int64_t cols) {
    if (floats_ == ops_.floats_.size()) ops_.floats_.emplace_back();
    Tensor& tensor = ops_.floats_[floats_++];
    if (tensor.size() < rows * cols) {
      tensor = Tensor();  // give the old memory back first
      tensor = Tensor({rows, cols});
    }
    return {tensor.data(), rows, cols};
  }
  Int8Activations& Int8() {
    if (int8_ == ops_.int8_.size()) ops_.int8_.emplace_back();
    return ops_.int8_[int8_++];
  }

 private:
  CpuOps& ops_;
  size_t floats_ = 0, int8_ = 0;
};

CpuOps::Int8Form CpuOps::FormOf(const Linear& layer) {
  return {layer.int8_group, layer.fineness, Int8RotationOf(layer.weight)};
}

const Int8Activations* CpuOps::PreparedInput::Find(const Int8Form& form) const {
  const auto found = std::find_if(int8.begin(), int8.end(),
                                  [&](const Quantized& quantized) { return quantized.form == form; });
  return found == int8.end() ? nullptr : found->x;
}

Int8Activations& CpuOps::Quantize(const Linear& layer, int64_t rows, const RowSource& source,
                                  Memory& memory) {
  Int8Activations& quantized = memory.Int8();
  const int64_t cols = layer.weight.cols, rotation = Int8RotationOf(layer.weight);
  const auto rotated = [&](int64_t row, float* buffer) {
    const float* const x = source(row, buffer);
    if (x != buffer) std::copy_n(x, cols, buffer);
    Rotate(buffer, cols, rotation);
    return buffer;
  };
  quantized.Quantize(rows, cols, layer.int8_group, layer.fineness, rotation > 0 ? RowSource(rotated) : source,
                     compute_.pool);
  return quantized;
}

CpuOps::PreparedInput CpuOps::Prepare(ConstView x, const Linear& layer, Memory& memory) {
  const Profile::Scope timed = Timed(kPreparing);
  PreparedInput input{.floats = x, .int8 = {}};
  if (layer.int8_group > 0) {
    const Int8Activations& quantized = Quantize(
        layer, x.rows, [&](int64_t row, float*) { return x.row(row); }, memory);
    input.int8.push_back({FormOf(layer), &quantized});
  }
  return input;
}

// Without a shift zeros are added, which changes no bits but the sign of a zero.
const float* CpuOps::ShiftOf(const Modulation& modulation, const ModulatedRows& span, int64_t cols) const {
  return modulation.shift == Modulation::kNone ? zeros_.data()
                                               : PartOf(modulation, span, modulation.shift, cols);
}

void CpuOps::Normalize(const Norm& norm, ConstView x, View to) {
  if (norm.kind == Norm::Kind::kRms) {
    qwen_image::RmsNorm(x, norm.weight->data(), norm.eps, to, compute_.pool);
  } else if (norm.bias) {
    qwen_image::LayerNorm(x, norm.weight->data(), norm.bias->data(), norm.eps, to, compute_.pool);
  } else {
    qwen_image::LayerNorm(x, norm.eps, to, compute_.pool);
  }
}

void CpuOps::NormAndModulate(const Projection& p, View to, const Tap& tap) {
  const ConstView x = p.x->view;
  const bool modulated = p.modulation.values != nullptr;
  const bool together = modulated && IsPlainLayerNorm(p.norm) && !Wants(tap, p.norm.name);
  ThreadPool& pool = compute_.pool;
  ConstView normed = x;
  if (!together && p.norm.kind != Norm::Kind::kNone) {
    Normalize(p.norm, x, to);
    if (p.norm.name) tap(p.norm.name, to.data, p.x->shape);
    normed = to;
  }
  if (!modulated) return;
  for (const ModulatedRows& span : p.modulation.spans) {
    const float* const shift = ShiftOf(p.modulation, span, x.cols);
    const float* const scale = PartOf(p.modulation, span, p.modulation.scale, x.cols);
    const ConstView from = normed.Rows(span.begin, span.count);
    const View rows = to.Rows(span.begin, span.count);
    if (together) {
      LayerNormModulate(from, p.norm.eps, scale, shift, rows, pool);
    } else {
      Modulate(from, scale, shift, rows, pool);
    }
  }
  if (p.modulated) tap(p.modulated, to.data, p.x->shape);
}

// The same for one row, whose result may lie where it was or in `buffer`.
const float* CpuOps::NormedRow(const Projection& p, int64_t row, float* buffer) {
  const ConstView x = p.x->view.Rows(row, 1);
  const View to = {buffer, 1, x.cols};
  const bool together = p.modulation.values && IsPlainLayerNorm(p.norm);
  ConstView normed = x;
  if (!together && p.norm.kind != Norm::Kind::kNone) {
    Normalize(p.norm, x, to);
    normed = to;
  }
  if (!p.modulation.values) return normed.data;
  const ModulatedRows& span = SpanOf(p.modulation, row);
  const float* const shift = ShiftOf(p.modulation, span, x.cols);
  const float* const scale = PartOf(p.modulation, span, p.modulation.scale, x.cols);
  if (together) {
    LayerNormModulate(x, p.norm.eps, scale, shift, to, compute_.pool);
  } else {
    Modulate(normed, scale, shift, to, compute_.pool);
  }
  return buffer;
}

CpuOps::PreparedInput CpuOps::Prepare(const Projection& p, Memory& memory, const Tap& tap) {
  const Profile::Scope timed = Timed(kPreparing);
  const ConstView x = p.x->view;
  const bool changed = p.norm.kind != Norm::Kind::kNone || p.modulation.values;
  if (p.modulation.values) CheckModulation(p.modulation, {p.modulation.scale});
  if (p.modulation.shift == Modulation::kNone && static_cast<int64_t>(zeros_.size()) < x.cols)
    zeros_.resize(static_cast<size_t>(x.cols), 0.0f);
  const bool floats = Wants(tap, p.norm.name) || Wants(tap, p.modulated) ||
                      std::any_of(p.products.begin(), p.products.end(), [](const Product& product) {
                        return product.layer->int8_group == 0 || !product.layer->updates.empty();
                      });
  PreparedInput input{.floats = changed ? ConstView() : x, .int8 = {}};
  if (changed && floats) {
    const View normed = memory.Floats(x.rows, x.cols);
    NormAndModulate(p, normed, tap);
    input.floats = normed;
  }
  const auto row_of = [&](int64_t row, float* buffer) {
    return input.floats.rows > 0 ? input.floats.row(row) : NormedRow(p, row, buffer);
  };
  for (const Product& product : p.products) {
    const Linear& layer = *product.layer;
    if (layer.int8_group > 0 && !input.Find(FormOf(layer)))
      input.int8.push_back({FormOf(layer), &Quantize(layer, x.rows, row_of, memory)});
  }
  return input;
}

void CpuOps::Multiply(ConstView x, const Linear& layer, View y) {
  const Profile::Scope timed = Timed("products");
  MatMul(x, layer.weight, layer.bias_data(), y, compute_.pool);
}

void CpuOps::Multiply(std::span<const Int8Product> products) {
  const Profile::Scope timed = Timed("products");
  Int8MatMul(products, compute_.pool);
}

// y += factor · (x · downᵀ) · upᵀ: the product of the two small matrices is never formed.
void CpuOps::AddUpdates(const Linear& layer, ConstView x, View y, Memory& memory) {
  if (layer.updates.empty()) return;
  const Profile::Scope timed = Timed("products");
  for (const LowRankUpdate& update : layer.updates) {
    const View hidden = memory.Floats(x.rows, update.down.rows);
    MatMul(x, update.down, nullptr, hidden, compute_.pool);
    for (int64_t i = 0; i < hidden.size(); ++i) hidden.data[i] *= update.factor;
    AddMatMul(hidden, update.up, y, compute_.pool);
  }
}

void CpuOps::Multiply(const Linear& layer, const Array& x, Array& y) {
  const Product product{.layer = &layer, .name = nullptr, .y = &y};
  const Projection projection{.x = &x, .products = {product}};
  Project({&projection, 1}, Tap());
}

void CpuOps::Project(std::span<const Projection> projections, const Tap& tap) {
  Memory memory(*this);
  std::vector<PreparedInput> inputs;
  std::vector<Int8Product> together;
  for (const Projection& p : projections) {
    const PreparedInput& input = inputs.emplace_back(Prepare(p, memory, tap));
    for (const Product& product : p.products) {
      const Linear& layer = *product.layer;
      if (layer.int8_group == 0) {
        Multiply(input.floats, layer, product.y->view);
        continue;
      }
      together.push_back({.x = input.Find(FormOf(layer)),
                          .w = &layer.weight,
                          .bias = layer.bias_data(),
                          .y = product.y->view});
      together.back().gelu = FusesGelu(p, product, tap);
    }
  }
  Multiply(together);

  for (size_t i = 0; i < projections.size(); ++i) {
    const Projection& p = projections[i];
    for (const Product& product : p.products) {
      const Linear& layer = *product.layer;
      AddUpdates(layer, inputs[i].floats, product.y->view, memory);
      if (product.name) Show(tap, product.name, *product.y);
      if (!FusesGelu(p, product, tap)) {
        const Profile::Scope timed = Timed("activation");
        Activate(p.activation, product.y->view, compute_.pool);
      }
      if (p.activated) Show(tap, p.activated, *product.y);
    }
  }
}

void CpuOps::AddGate(const GatedAddition& a, View branch, const Tap& tap) {
  const Profile::Scope timed = Timed("addition");
  const View sum = a.sum->view;
  if (!a.gate.values) {
    qwen_image::Add(sum, branch, sum, compute_.pool);
    return;
  }
  const auto gate_of = [&](const ModulatedRows& span) { return PartOf(a.gate, span, a.gate.gate, sum.cols); };
  if (a.gate.by_row && Wants(tap, a.gate_name)) {
    Tensor gates({1, sum.rows, sum.cols});
    for (const ModulatedRows& span : a.gate.spans)
      for (int64_t i = 0; i < span.count; ++i)
        std::copy_n(gate_of(span), sum.cols, gates.row(span.begin + i));
    tap(a.gate_name, gates);
    for (int64_t i = 0; i < sum.rows; ++i)
      AddGated(branch.Rows(i, 1), gates.row(i), sum.Rows(i, 1), compute_.pool);
    return;
  }
  if (a.gate_name) tap(a.gate_name, gate_of(a.gate.spans.front()), {1, sum.cols});
  for (const ModulatedRows& span : a.gate.spans) {
    AddGated(branch.Rows(span.begin, span.count), gate_of(span), sum.Rows(span.begin, span.count),
             compute_.pool);
  }
}

void CpuOps::AddProjected(std::span<const GatedAddition> additions, const Tap& tap) {
  Memory memory(*this);
  struct Step {
    PreparedInput input;
    View branch;  // no rows: the product adds to the sum by itself
  };
  std::vector<Step> steps;
  std::vector<Int8Product> together;
  for (const GatedAddition& a : additions) {
    const Linear& layer = *a.layer;
    const View sum = a.sum->view;
    if (a.gate.values) CheckModulation(a.gate, {a.gate.gate});
    Step& step = steps.emplace_back(Step{Prepare(a.x->view, layer, memory), {}});
    const bool fused = layer.int8_group > 0 && layer.updates.empty() && !Wants(tap, a.names[0]) &&
                       !Wants(tap, a.names[1]) && !Wants(tap, a.gate_name);
    if (!fused) step.branch = memory.Floats(sum.rows, sum.cols);
    if (layer.int8_group == 0) {
      Multiply(step.input.floats, layer, step.branch);
      continue;
    }
    Int8Product product{.x = step.input.int8.front().x,
                        .w = &layer.weight,
                        .bias = layer.bias_data(),
                        .y = fused ? sum : step.branch};
    if (fused && a.gate.values) {
      const auto gate_of = [&](const ModulatedRows& span) {
        return PartOf(a.gate, span, a.gate.gate, sum.cols);
      };
      product.gate = gate_of(a.gate.spans.front());
      if (a.gate.spans.size() > 1) {
        product.late_row = a.gate.spans.back().begin;
        product.late_gate = gate_of(a.gate.spans.back());
      }
    } else {
      product.add = fused;
    }
    together.push_back(product);
  }
  Multiply(together);

  for (size_t i = 0; i < additions.size(); ++i) {
    const GatedAddition& a = additions[i];
    const View branch = steps[i].branch;
    if (branch.rows > 0) {
      AddUpdates(*a.layer, steps[i].input.floats, branch, memory);
      for (const char* name : a.names)
        if (name) tap(name, branch.data, a.sum->shape);
      AddGate(a, branch, tap);
    }
    if (a.sum_name) Show(tap, a.sum_name, *a.sum);
  }
}

}  // namespace qwen_image
