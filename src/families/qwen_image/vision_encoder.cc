#include "families/qwen_image/vision_encoder.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/fail.h"

namespace qwen_image {
namespace {

std::vector<int64_t> Inverse(const std::vector<int64_t>& order) {
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return inverse;
}

// The pictures of one prompt on their way through the tower.
class VisionEncoderPass {
 public:
  VisionEncoderPass(const VisionEncoder& model, const VisionEncoder::Layout& layout, const Compute& compute)
      : weights_(model.weights()),
        config_(model.config()),
        layout_(layout),
        compute_(compute),
        ops_(model.backend().Start(compute)) {}

  Tensor Run(const Tensor& pixel_values, const Tap& tap) {
    Tensor result;
    ops_->Run([&] {
      const Tap visual = tap.Under("model.visual.");
      const int64_t patches = pixel_values.dim(0);
      rope_ = {ops_->FromHost(layout_.cos), ops_->FromHost(layout_.sin)};
      MakeScratch(patches);
      Array embedded = ops_->New({patches, config_.hidden_size});
      ops_->Multiply(weights_.patch_embed, ops_->FromHost(pixel_values), embedded);
      ops_->Show(visual, "patch_embed", embedded);
      Array hidden_states = ops_->Reordered(embedded, layout_.order, config_.merge_unit());

      for (size_t i = 0; i < weights_.blocks.size(); ++i) {
        compute_.Continue(i, weights_.blocks.size());
        const auto index = static_cast<int64_t>(i);
        const Tap block_tap = visual.Under("blocks.", index, ".");
        RunAttention(weights_.blocks[i], hidden_states, block_tap);
        RunMlp(weights_.blocks[i], hidden_states, block_tap);
        ops_->Show(visual.Under("blocks.", index, ""), "", hidden_states);
        ops_->Finish(std::array{&hidden_states});
      }

      Array merged = RunMerger(hidden_states, visual.Under("merger."));
      ops_->Show(visual, "merger", merged);
      Array embeds = ops_->Reordered(merged, Inverse(layout_.order), 1);
      ops_->Show(tap, "model.visual", embeds);
      result = ops_->ToHost(embeds);
    });
    return result;
  }

 private:
  using Block = VisionEncoderWeights::Block;

  // Both halves of a block use the same memory.
  void MakeScratch(int64_t patches) {
    const int64_t hidden = config_.hidden_size, intermediate = config_.intermediate_size;
    const Array memory = ops_->New({patches, std::max(4 * hidden, 2 * intermediate)});
    qkv_ = ops_->Cols(memory, 0, 3 * hidden);
    attended_ = {ops_->Cols(memory, 3 * hidden, hidden)};
    gate_ = ops_->Cols(memory, 0, intermediate);
    up_ = ops_->Cols(memory, intermediate, intermediate);
  }

  void RunAttention(const Block& w, Array& hidden_states, const Tap& tap) {
    const int64_t hidden = config_.hidden_size;
    Projection projection{.x = &hidden_states,
                          .norm = {Norm::Kind::kRms, kVisionEncoderEps, &w.norm1, "norm1"},
                          .products = {}};
    Joint parts;
    if (w.attn.qkv.size() == 1) {
      projection.products = {{&w.attn.qkv[0], "attn.qkv", &qkv_}};
    } else {
      for (int64_t i = 0; i < 3; ++i) parts.push_back(ops_->Cols(qkv_, i * hidden, hidden));
      for (size_t i = 0; i < 3; ++i) projection.products.push_back({&w.attn.qkv[i], nullptr, &parts[i]});
    }
    ops_->Project({&projection, 1}, tap);
    if (!parts.empty()) {
      qkv_ = ops_->JoinCols(parts);
      ops_->Show(tap, "attn.qkv", qkv_);
    }
    Joint q = {ops_->Cols(qkv_, 0, hidden)}, k = {ops_->Cols(qkv_, hidden, hidden)};
    const Joint v = {ops_->Cols(qkv_, 2 * hidden, hidden)};
    ops_->RotateHalves(rope_, q[0]);
    ops_->RotateHalves(rope_, k[0]);
    ops_->Attend({.q = &q,
                  .k = &k,
                  .v = &v,
                  .heads = config_.num_heads,
                  .kv_heads = config_.num_heads,
                  .head_dim = config_.head_dim(),
                  .spans = SeparateSpans(w.full_attention ? layout_.frame_ends : layout_.window_ends)},
                 attended_, tap);
    const GatedAddition proj{
        .x = &attended_[0], .layer = &w.attn.proj, .names = {"attn.proj", "attn"}, .sum = &hidden_states};
    ops_->AddProjected({&proj, 1}, tap);
  }

  void RunMlp(const Block& w, Array& hidden_states, const Tap& tap) {
    const Projection gate_and_up{
        .x = &hidden_states,
        .norm = {Norm::Kind::kRms, kVisionEncoderEps, &w.norm2, "norm2"},
        .products = {{&w.mlp.gate_proj, "mlp.gate_proj", &gate_}, {&w.mlp.up_proj, "mlp.up_proj", &up_}}};
    ops_->Project({&gate_and_up, 1}, tap);
    ops_->SiluMul(up_, gate_);
    const GatedAddition down_proj{
        .x = &gate_, .layer = &w.mlp.down_proj, .names = {"mlp.down_proj", "mlp"}, .sum = &hidden_states};
    ops_->AddProjected({&down_proj, 1}, tap);
  }

  Array RunMerger(Array& hidden_states, const Tap& tap) {
    const auto& w = weights_.merger;
    const int64_t tokens = hidden_states.dim(0) / config_.merge_unit();
    const int64_t width = config_.hidden_size * config_.merge_unit();
    ops_->RmsNorm(w.ln_q, kVisionEncoderEps, hidden_states);
    ops_->Show(tap, "ln_q", hidden_states);
    const Array merged_patches = ops_->Reshaped(hidden_states, {tokens, width});
    Array hidden = ops_->New({tokens, width}), merged = ops_->New({tokens, config_.out_hidden_size});
    const Projection mlp_0{
        .x = &merged_patches, .products = {{&w.mlp_0, "mlp.0", &hidden}}, .activation = Activation::kGelu};
    ops_->Project({&mlp_0, 1}, tap);
    const Projection mlp_2{.x = &hidden, .products = {{&w.mlp_2, "mlp.2", &merged}}};
    ops_->Project({&mlp_2, 1}, tap);
    return merged;
  }

  const VisionEncoderWeights& weights_;
  const VisionEncoderConfig& config_;
  const VisionEncoder::Layout& layout_;
  const Compute& compute_;
  std::unique_ptr<Ops> ops_;
  Rope rope_;
  Array qkv_;        // [patches, 3 · hidden_size]
  Joint attended_;   // [patches, hidden_size]
  Array gate_, up_;  // [patches, intermediate_size]
};

}  // namespace

VisionEncoder::VisionEncoder(WeightStore store, Precision precision)
    : config_(ReadVisionEncoderConfig(store)),
      store_(std::move(store)),
      weights_(config_, store_, precision) {}

void VisionEncoder::ReleasePages() const {
  backend_->Release();
  store_.ReleasePages();
}

VisionEncoder::Layout VisionEncoder::MakeLayout(std::span<const ImageGrid> grids) const {
  const int64_t merge = config_.spatial_merge_size;
  const int64_t window = config_.window_size / merge / config_.patch_size;  // in tokens
  int64_t patches = 0;
  for (const ImageGrid& grid : grids) patches += grid.patches();
  const int64_t quarter = config_.head_dim() / 4;
  Layout layout{.order = {},
                .window_ends = {},
                .frame_ends = {},
                .cos = Tensor({patches, 2 * quarter}),
                .sin = Tensor({patches, 2 * quarter})};
  std::vector<float> inv_freq;
  for (int64_t i = 0; i < quarter; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(2 * quarter);
    inv_freq.push_back(1.0f / std::pow(static_cast<float>(config_.rope_theta), exponent));
  }

  int64_t patch = 0, first_token = 0;
  const auto add_patch = [&](int64_t h, int64_t w) {
    for (int64_t i = 0; i < 2 * quarter; ++i) {
      const float angle =
          static_cast<float>(i < quarter ? h : w) * inv_freq[static_cast<size_t>(i % quarter)];
      layout.cos.row(patch)[i] = std::cos(angle);
      layout.sin.row(patch)[i] = std::sin(angle);
    }
    ++patch;
  };
  const auto add_token = [&](int64_t row, int64_t column, int64_t columns) {
    layout.order.push_back(first_token + row * columns + column);
    for (int64_t i = 0; i < config_.merge_unit(); ++i)
      add_patch(row * merge + i / merge, column * merge + i % merge);
  };
  for (const ImageGrid& grid : grids) {
    const int64_t rows = grid.h / merge, columns = grid.w / merge;
    for (int64_t t = 0; t < grid.t; ++t, first_token += rows * columns) {
      for (int64_t top = 0; top < rows; top += window) {
        for (int64_t left = 0; left < columns; left += window) {
          for (int64_t row = top; row < std::min(top + window, rows); ++row) {
            for (int64_t column = left; column < std::min(left + window, columns); ++column)
              add_token(row, column, columns);
          }
          layout.window_ends.push_back(patch);
        }
      }
      layout.frame_ends.push_back(patch);
    }
  }
  return layout;
}

Tensor VisionEncoder::Encode(const Tensor& pixel_values, std::span<const ImageGrid> grids,
                             const Compute& compute, const Tap& tap) const {
  CheckPatches(pixel_values, grids, config_.spatial_merge_size, config_.patch_values());
  return VisionEncoderPass(*this, MakeLayout(grids), compute).Run(pixel_values, tap);
}

}  // namespace qwen_image
