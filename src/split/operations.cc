// Operations that are computed row by row: each machine computes its own rows.
#include <algorithm>
#include <array>

#include "core/fail.h"
#include "split/listener.h"
#include "split/split_ops.h"

namespace qwen_image::split {

// Of the rows of x.
Modulation SplitOps::Local(const Modulation& modulation, const Array& x) const {
  return modulation.values && x.values ? modulation.OfRows(OwnBegin(x), x.view.rows) : modulation;
}

// The angles of the tokens of x.
Rope SplitOps::Local(const Rope& rope, const Array& x) const {
  if (!x.values) return rope;
  const int64_t begin = OwnBegin(x), count = x.view.rows;
  return {inner_->Rows(rope.cos, begin, count), inner_->Rows(rope.sin, begin, count)};
}

void SplitOps::Multiply(const Linear& layer, const Array& x, Array& y) {
  const Array from = Local(Even(x));
  Array to = Local(y);
  inner_->Multiply(layer, from, to);
}

void SplitOps::RmsNorm(const std::vector<float>& weight, float eps, Array& x) {
  Array local = Local(x);
  inner_->RmsNorm(weight, eps, local);
}

void SplitOps::LayerNorm(const std::vector<float>& weight, const std::vector<float>& bias, float eps,
                         Array& x) {
  Array local = Local(x);
  inner_->LayerNorm(weight, bias, eps, local);
}

void SplitOps::Silu(Array& x) {
  Array local = Local(x);
  inner_->Silu(local);
}

void SplitOps::Tanh(Array& x) {
  Array local = Local(x);
  inner_->Tanh(local);
}

void SplitOps::SiluMul(const Array& up, Array& gate) {
  Array local = Local(gate);
  inner_->SiluMul(Local(up), local);
}

void SplitOps::Add(const Array& x, Array& sum) {
  Array local = Local(sum);
  inner_->Add(Local(Even(x)), local);
}

void SplitOps::Project(std::span<const Projection> projections, const Tap& tap) {
  // What the local operations point to.
  std::vector<Array> inputs, outputs;
  std::vector<Listener::Name> names;
  size_t products = 0;
  for (const Projection& p : projections) products += p.products.size();
  inputs.reserve(projections.size());
  outputs.reserve(products);
  std::vector<Projection> local(projections.begin(), projections.end());
  for (Projection& p : local) {
    const Array x = Even(*p.x);
    p.modulation = Local(p.modulation, x);
    p.x = &inputs.emplace_back(Local(x));
    for (const char* name : {p.norm.name, p.modulated}) names.emplace_back(name, x);
    for (Product& product : p.products) {
      for (const char* name : {product.name, p.activated}) names.emplace_back(name, *product.y);
      product.y = &outputs.emplace_back(Local(*product.y));
    }
  }
  inner_->Project(local, Listener(*this, tap, names).tap());
}

void SplitOps::AddProjected(std::span<const GatedAddition> additions, const Tap& tap) {
  std::vector<Array> inputs, sums;
  std::vector<Listener::Name> names;
  inputs.reserve(additions.size());
  sums.reserve(additions.size());
  std::vector<GatedAddition> local(additions.begin(), additions.end());
  for (GatedAddition& a : local) {
    for (const char* name : {a.names[0], a.names[1], a.gate_name, a.sum_name})
      names.emplace_back(name, *a.sum);
    a.gate = Local(a.gate, *a.sum);
    a.x = &inputs.emplace_back(Local(Even(*a.x)));
    a.sum = &sums.emplace_back(Local(*a.sum));
  }
  inner_->AddProjected(local, Listener(*this, tap, names).tap());
}

void SplitOps::AddGatedMlp(const GatedMlp& mlp, const Tap& tap) {
  const Array x = Local(Even(*mlp.x));
  Array sum = Local(*mlp.sum);
  std::vector<Listener::Name> names;
  for (const char* name : {mlp.modulated, mlp.norm.name, mlp.gate_layer_name, mlp.up_name, mlp.down_names[0],
                           mlp.down_names[1], mlp.gate_name, mlp.sum_name})
    names.emplace_back(name, *mlp.sum);
  GatedMlp local = mlp;
  local.x = &x;
  local.sum = &sum;
  local.modulation = Local(mlp.modulation, *mlp.sum);
  inner_->AddGatedMlp(local, Listener(*this, tap, names).tap());
}

void SplitOps::NormAndRotate(std::span<const NormRope> inputs, const Tap& tap) {
  std::vector<Array> arrays;
  std::vector<Rope> ropes;
  std::vector<Listener::Name> names;
  arrays.reserve(inputs.size());
  ropes.reserve(inputs.size());
  std::vector<NormRope> local(inputs.begin(), inputs.end());
  for (NormRope& n : local) {
    for (const char* name : {n.norm, n.rotated}) names.emplace_back(name, *n.x);
    n.rope = &ropes.emplace_back(Local(*n.rope, *n.x));
    n.x = &arrays.emplace_back(Local(*n.x));
  }
  inner_->NormAndRotate(local, Listener(*this, tap, names).tap());
}

void SplitOps::RotateHalves(const Rope& rope, Array& x) {
  Array local = Local(x);
  inner_->RotateHalves(Local(rope, x), local);
}

}  // namespace qwen_image::split
