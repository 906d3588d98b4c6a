#include "families/qwen_image/vision_encoder.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"

namespace qwen_image {
namespace {

// Copies groups of `size` floats: to the place i the one at order[i], or the other way round.
void Gather(const float* from, const std::vector<int64_t>& order, int64_t size, float* to) {
  for (size_t i = 0; i < order.size(); ++i)
    std::copy_n(from + order[i] * size, size, to + static_cast<int64_t>(i) * size);
}
void Scatter(const float* from, const std::vector<int64_t>& order, int64_t size, float* to) {
  for (size_t i = 0; i < order.size(); ++i)
    std::copy_n(from + static_cast<int64_t>(i) * size, size, to + order[i] * size);
}

}  // namespace

// What a block computes, in one piece of memory for both of its halves.
struct VisionEncoder::Buffers {
  Buffers(const VisionEncoderConfig& config, int64_t patches)
      : memory({patches, std::max(4 * config.hidden_size, 2 * config.intermediate_size)}),
        qkv(memory.data()),
        attended(qkv + 3 * patches * config.hidden_size),
        gate(memory.data()),
        up(gate + patches * config.intermediate_size),
        normed({patches, config.hidden_size}),
        out({patches, config.hidden_size}) {}

  Tensor memory;
  float* qkv;       // [patches, 3, heads, head_dim]
  float* attended;  // [patches, hidden_size]
  float* gate;      // [patches, intermediate_size]
  float* up;        // [patches, intermediate_size]
  Tensor normed, out;
};

VisionEncoder::VisionEncoder(WeightStore store, Precision precision)
    : config_(ReadVisionEncoderConfig(store)),
      store_(std::move(store)),
      weights_(config_, store_, precision) {}

void VisionEncoder::ReleasePages() const {
  if (twin_) twin_->Release();
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

void VisionEncoder::RunAttention(const Block& w, const Layout& layout, Buffers& b, ThreadPool& pool,
                                 const Tap& tap) const {
  const int64_t patches = b.normed.dim(0), hidden = config_.hidden_size, heads = config_.num_heads;
  const int64_t head_dim = config_.head_dim(), stride = 3 * hidden;
  for (size_t part = 0; part < w.attn.qkv.size(); ++part) {
    const bool whole = w.attn.qkv.size() == 1;
    w.attn.qkv[part](b.normed.data(), patches, whole ? b.qkv : b.attended, pool);
    for (int64_t i = 0; !whole && i < patches; ++i)
      std::copy_n(b.attended + i * hidden, hidden, b.qkv + i * stride + static_cast<int64_t>(part) * hidden);
  }
  tap("qkv", b.qkv, {patches, stride});

  // q and k are neighbours.
  RopeHalves({b.qkv, patches, 2 * hidden, stride}, {layout.cos.data(), layout.sin.data(), head_dim}, pool);
  int64_t begin = 0;
  for (const int64_t end : w.full_attention ? layout.frame_ends : layout.window_ends) {
    const ConstView qkv = ConstView(b.qkv, patches, stride).Rows(begin, end - begin);
    Attention(qkv.Cols(0, hidden), qkv.Cols(hidden, hidden), qkv.Cols(2 * hidden, hidden),
              {.heads = heads, .kv_heads = heads, .head_dim = head_dim},
              {b.attended + begin * hidden, end - begin, hidden}, pool);
    begin = end;
  }
  w.attn.proj(b.attended, patches, b.out.data(), pool);
  tap("proj", b.out);
}

void VisionEncoder::RunMlp(const Mlp& w, Buffers& b, ThreadPool& pool, const Tap& tap) const {
  const int64_t patches = b.normed.dim(0), intermediate = config_.intermediate_size;
  w.gate_proj(b.normed.data(), patches, b.gate, pool);
  tap("gate_proj", b.gate, {patches, intermediate});
  w.up_proj(b.normed.data(), patches, b.up, pool);
  tap("up_proj", b.up, {patches, intermediate});
  SiluMul({b.gate, patches, intermediate}, {b.up, patches, intermediate}, {b.gate, patches, intermediate},
          pool);
  w.down_proj(b.gate, patches, b.out.data(), pool);
  tap("down_proj", b.out);
}

void VisionEncoder::RunBlock(const Block& w, Tensor& hidden_states, const Layout& layout, Buffers& b,
                             ThreadPool& pool, const Tap& tap) const {
  RmsNorm(ViewOf(hidden_states), w.norm1.data(), kVisionEncoderEps, ViewOf(b.normed), pool);
  tap("norm1", b.normed);
  RunAttention(w, layout, b, pool, tap.Under("attn."));
  tap("attn", b.out);
  Add(ViewOf(hidden_states), ViewOf(b.out), ViewOf(hidden_states), pool);

  RmsNorm(ViewOf(hidden_states), w.norm2.data(), kVisionEncoderEps, ViewOf(b.normed), pool);
  tap("norm2", b.normed);
  RunMlp(w.mlp, b, pool, tap.Under("mlp."));
  tap("mlp", b.out);
  Add(ViewOf(hidden_states), ViewOf(b.out), ViewOf(hidden_states), pool);
}

Tensor VisionEncoder::RunMerger(Tensor& hidden_states, ThreadPool& pool, const Tap& tap) const {
  const int64_t patches = hidden_states.dim(0), tokens = patches / config_.merge_unit();
  RmsNorm(ViewOf(hidden_states), weights_.merger.ln_q.data(), kVisionEncoderEps, ViewOf(hidden_states), pool);
  tap("ln_q", hidden_states);
  Tensor hidden({tokens, config_.hidden_size * config_.merge_unit()});
  weights_.merger.mlp_0(hidden_states.data(), tokens, hidden.data(), pool);
  tap("mlp.0", hidden);
  Gelu(ViewOf(hidden), ViewOf(hidden), pool);
  Tensor merged({tokens, config_.out_hidden_size});
  weights_.merger.mlp_2(hidden.data(), tokens, merged.data(), pool);
  tap("mlp.2", merged);
  return merged;
}

void VisionEncoder::CheckInput(const Tensor& pixel_values, std::span<const ImageGrid> grids) const {
  constexpr int64_t kMaxSide = 1 << 15;
  const int64_t merge = config_.spatial_merge_size;
  int64_t patches = 0;
  for (const ImageGrid& grid : grids) {
    const auto fits = [&](int64_t side) { return side > 0 && side <= kMaxSide && side % merge == 0; };
    if (grid.t < 1 || grid.t > kMaxSide || !fits(grid.h) || !fits(grid.w)) {
      Fail(ErrorKind::kUsage,
           "a picture of {} x {} x {} patches: sides of a multiple of {} patches are expected", grid.t,
           grid.h, grid.w, merge);
    }
    patches += grid.patches();
  }
  const Shape expected = {patches, config_.patch_values()};
  if (grids.empty() || pixel_values.shape() != expected) {
    Fail(ErrorKind::kUsage, "the vision encoder was given pixels {} for {} pictures, which need {}",
         ToString(pixel_values.shape()), grids.size(), ToString(expected));
  }
}

Tensor VisionEncoder::Encode(const Tensor& pixel_values, std::span<const ImageGrid> grids,
                             const Compute& compute, const Tap& tap) const {
  CheckInput(pixel_values, grids);
  const Tap visual = tap.Under("model.visual.");
  const int64_t patches = pixel_values.dim(0), hidden = config_.hidden_size;
  const Layout layout = MakeLayout(grids);
  if (twin_) return twin_->Encode(pixel_values, layout, compute, tap);
  Buffers buffers(config_, patches);
  Tensor hidden_states({patches, hidden});

  const WeightMatrix proj{.data = weights_.patch_embed_proj.data(),
                          .dtype = DType::kF32,
                          .rows = hidden,
                          .cols = config_.patch_values()};
  MatMul(ViewOf(pixel_values), proj, nullptr, ViewOf(buffers.out), compute.pool);
  visual("patch_embed", buffers.out);
  Gather(buffers.out.data(), layout.order, config_.merge_unit() * hidden, hidden_states.data());

  for (size_t i = 0; i < weights_.blocks.size(); ++i) {
    compute.Continue(i, weights_.blocks.size());
    const auto index = static_cast<int64_t>(i);
    RunBlock(weights_.blocks[i], hidden_states, layout, buffers, compute.pool,
             visual.Under("blocks.", index, "."));
    visual.Under("blocks.", index, "")("", hidden_states);
  }

  Tensor merged = RunMerger(hidden_states, compute.pool, visual.Under("merger."));
  visual("merger", merged);
  Tensor embeds(merged.shape());
  Scatter(merged.data(), layout.order, config_.out_hidden_size, embeds.data());
  tap("model.visual", embeds);
  return embeds;
}

}  // namespace qwen_image
