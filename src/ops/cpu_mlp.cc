// A gated MLP by bands of rows: its hidden layer is several times as wide as its input.
#include <algorithm>

#include "ops/cpu.h"

namespace qwen_image {
namespace {

// Enough rows that the products are as fast as for all of them: weights are unpacked once for each band.
constexpr int64_t kMostRows = 2304;

bool WantsAny(const GatedMlp& mlp, const Tap& tap) {
  const char* const names[] = {mlp.norm.name,     mlp.modulated,     mlp.gate_layer_name, mlp.up_name,
                               mlp.down_names[0], mlp.down_names[1], mlp.gate_name,       mlp.sum_name};
  return std::any_of(std::begin(names), std::end(names),
                     [&](const char* name) { return name && tap.Wants(name); });
}

}  // namespace

void CpuOps::AddGatedMlp(const GatedMlp& mlp, const Tap& tap) {
  const int64_t rows = mlp.x->view.rows, width = mlp.up->weight.rows;
  // A listener is shown all rows at once.
  const int64_t bands = WantsAny(mlp, tap) ? 1 : (rows + kMostRows - 1) / kMostRows;
  if (bands == 0) return;
  const int64_t band_rows = (rows + bands - 1) / bands;
  for (Array* memory : {&mlp_gate_, &mlp_up_}) {
    if (memory->memory && memory->memory->size() >= band_rows * width) continue;
    *memory = {};  // give the old memory back first
    *memory = New({1, band_rows, width});
  }
  for (int64_t first = 0; first < rows; first += band_rows) {
    const int64_t count = std::min(band_rows, rows - first);
    const auto part_of = [&](const Array& memory) {
      Array part = memory;
      part.shape = {1, count, width};
      part.view = {memory.memory->data(), count, width};
      return part;
    };
    Array gate = part_of(mlp_gate_), up = part_of(mlp_up_);
    const Array x = Rows(*mlp.x, first, count);
    Array sum = Rows(*mlp.sum, first, count);
    const Modulation modulation =
        mlp.modulation.values ? mlp.modulation.OfRows(first, count) : mlp.modulation;
    const Projection gate_up{
        .x = &x,
        .norm = mlp.norm,
        .modulation = modulation,
        .modulated = mlp.modulated,
        .products = {{mlp.gate_layer, mlp.gate_layer_name, &gate}, {mlp.up, mlp.up_name, &up}}};
    Project({&gate_up, 1}, tap);
    SiluMul(up, gate);
    const GatedAddition down{.x = &gate,
                             .layer = mlp.down,
                             .names = mlp.down_names,
                             .gate = modulation,
                             .gate_name = mlp.gate_name,
                             .sum = &sum,
                             .sum_name = mlp.sum_name};
    AddProjected({&down, 1}, tap);
  }
}

}  // namespace qwen_image
