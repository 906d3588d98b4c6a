// The transformer's table of weights, and the tables that follow from sizes.
#include "families/qwen_image/transformer_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace qwen_image {
namespace {

constexpr int64_t kTimeChannels = 256;  // width of the sinusoidal timestep embedding
constexpr float kRopeTheta = 10000.0f;

TransformerWeights::Stream BindStream(WeightBinder& binder, const TransformerConfig& config,
                                      const std::string& block, const TransformerWeights::StreamNames& names,
                                      Precision precision) {
  const int64_t dim = config.inner_dim(), head_dim = config.attention_head_dim;
  const auto linear = [&](const char* name, int64_t out, int64_t in) {
    return BindLinear(binder, block + name, out, in, Bias::kYes, precision);
  };
  Linear mod = linear(names.mod, 6 * dim, dim);
  // One row for all tokens: an error here is the same for the whole picture, and the time is that of reading
  // the weights anyway.
  mod.fineness = Int8Fineness::kEverywhere;
  return {
      .names = &names,
      .mod = std::move(mod),
      .to_q = linear(names.to_q, dim, dim),
      .to_k = linear(names.to_k, dim, dim),
      .to_v = linear(names.to_v, dim, dim),
      .to_out = linear(names.to_out, dim, dim),
      .norm_q = binder.Floats(block + names.norm_q + ".weight", {head_dim}),
      .norm_k = binder.Floats(block + names.norm_k + ".weight", {head_dim}),
      .mlp = {.proj = linear(names.mlp_proj, 4 * dim, dim), .out = linear(names.mlp_out, dim, 4 * dim)},
  };
}

}  // namespace

const TransformerWeights::StreamNames TransformerWeights::StreamNames::kImg = {
    .mod = ".img_mod.1",
    .norm1 = ".img_norm1",
    .modulated1 = ":img_modulated1",
    .gate1 = ":img_gate1",
    .to_q = ".attn.to_q",
    .to_k = ".attn.to_k",
    .to_v = ".attn.to_v",
    .norm_q = ".attn.norm_q",
    .norm_k = ".attn.norm_k",
    .query_rope = ":img_query_rope",
    .key_rope = ":img_key_rope",
    .to_out = ".attn.to_out.0",
    .attn_residual = ":img_attn_residual",
    .norm2 = ".img_norm2",
    .modulated2 = ":img_modulated2",
    .gate2 = ":img_gate2",
    .mlp = ".img_mlp",
    .mlp_proj = ".img_mlp.net.0.proj",
    .mlp_gelu = ".img_mlp.net.0",
    .mlp_out = ".img_mlp.net.2",
    .stream = ":img",
};

const TransformerWeights::StreamNames TransformerWeights::StreamNames::kTxt = {
    .mod = ".txt_mod.1",
    .norm1 = ".txt_norm1",
    .modulated1 = ":txt_modulated1",
    .gate1 = ":txt_gate1",
    .to_q = ".attn.add_q_proj",
    .to_k = ".attn.add_k_proj",
    .to_v = ".attn.add_v_proj",
    .norm_q = ".attn.norm_added_q",
    .norm_k = ".attn.norm_added_k",
    .query_rope = ":txt_query_rope",
    .key_rope = ":txt_key_rope",
    .to_out = ".attn.to_add_out",
    .attn_residual = ":txt_attn_residual",
    .norm2 = ".txt_norm2",
    .modulated2 = ":txt_modulated2",
    .gate2 = ":txt_gate2",
    .mlp = ".txt_mlp",
    .mlp_proj = ".txt_mlp.net.0.proj",
    .mlp_gelu = ".txt_mlp.net.0",
    .mlp_out = ".txt_mlp.net.2",
    .stream = ":txt",
};

// The layers at both ends stay exact: they are small, and everything passes through them.
TransformerWeights::TransformerWeights(const TransformerConfig& config, WeightStore& store, lora::Set& loras,
                                       Precision precision) {
  const int64_t dim = config.inner_dim();
  WeightBinder binder(store, &loras);
  img_in = BindLinear(binder, "img_in", dim, config.in_channels);
  txt_norm = binder.Floats("txt_norm.weight", {config.joint_attention_dim});
  txt_in = BindLinear(binder, "txt_in", dim, config.joint_attention_dim);
  time_linear_1 = BindLinear(binder, "time_text_embed.timestep_embedder.linear_1", dim, kTimeChannels);
  time_linear_2 = BindLinear(binder, "time_text_embed.timestep_embedder.linear_2", dim, dim);
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const std::string block = fmt::format("transformer_blocks.{}", i);
    transformer_blocks.push_back({BindStream(binder, config, block, StreamNames::kImg, precision),
                                  BindStream(binder, config, block, StreamNames::kTxt, precision)});
  }
  norm_out_linear = BindLinear(binder, "norm_out.linear", 2 * dim, dim);
  proj_out = BindLinear(binder, "proj_out", config.patch_size * config.patch_size * config.out_channels, dim);
  binder.Finish();
}

std::vector<const Linear*> LayersOf(const TransformerWeights::Block& block) {
  std::vector<const Linear*> layers;
  for (const TransformerWeights::Stream* w : {&block.img, &block.txt})
    layers.insert(layers.end(), {&w->to_q, &w->to_k, &w->to_v, &w->to_out, &w->mlp.proj, &w->mlp.out});
  return layers;
}

std::vector<const Linear*> TransformerWeights::AllLayers() const {
  std::vector<const Linear*> layers = {&img_in,        &txt_in,          &time_linear_1,
                                       &time_linear_2, &norm_out_linear, &proj_out};
  for (const Block& block : transformer_blocks) {
    layers.insert(layers.end(), {&block.img.mod, &block.txt.mod});
    const std::vector<const Linear*> inside = LayersOf(block);
    layers.insert(layers.end(), inside.begin(), inside.end());
  }
  return layers;
}

// Positions are centred: a picture's row y has the position y − ⌈height / 2⌉, and the n-th picture the frame
// n. The text continues on the diagonal, from the first position that no picture token uses.
RopeTable MakeRope(const TransformerConfig& config, int64_t text_tokens,
                   std::span<const TokenGrid> pictures) {
  const int64_t half = config.attention_head_dim / 2;
  int64_t tokens = text_tokens, text_start = 0;
  for (const TokenGrid& grid : pictures) {
    tokens += grid.tokens();
    text_start = std::max({text_start, grid.height / 2, grid.width / 2});
  }
  RopeTable rope{Tensor({tokens, half}), Tensor({tokens, half})};

  // An axis's share of the row of `token`; it begins after the shares of the axes before it.
  const auto fill = [&](int64_t token, size_t axis, int64_t begin, int64_t position) {
    const int64_t width = config.axes_dims_rope[axis];
    for (int64_t i = 0; i < width; i += 2) {
      const float freq = 1.0f / std::pow(kRopeTheta, static_cast<float>(i) / static_cast<float>(width));
      const float angle = static_cast<float>(position) * freq;
      rope.cos.row(token)[begin + i / 2] = std::cos(angle);
      rope.sin.row(token)[begin + i / 2] = std::sin(angle);
    }
  };
  const auto copy = [&](int64_t from, int64_t to, int64_t begin, int64_t count) {
    std::copy_n(rope.cos.row(from) + begin, count, rope.cos.row(to) + begin);
    std::copy_n(rope.sin.row(from) + begin, count, rope.sin.row(to) + begin);
  };
  const auto& axes = config.axes_dims_rope;
  const int64_t height_begin = axes[0] / 2, width_begin = (axes[0] + axes[1]) / 2;

  for (int64_t t = 0; t < text_tokens; ++t) {
    fill(t, 0, 0, text_start + t);
    fill(t, 1, height_begin, text_start + t);
    fill(t, 2, width_begin, text_start + t);
  }
  // A row's height and a column's width are the same for all its tokens, and all of a picture its frame.
  int64_t picture_begin = text_tokens;
  for (size_t frame = 0; frame < pictures.size(); ++frame) {
    const TokenGrid& grid = pictures[frame];
    const int64_t top = grid.height - grid.height / 2, left = grid.width - grid.width / 2;
    for (int64_t y = 0; y < grid.height; ++y) {
      const int64_t first = picture_begin + y * grid.width;
      if (y == 0) fill(first, 0, 0, static_cast<int64_t>(frame));
      fill(first, 1, height_begin, y - top);
      for (int64_t x = 0; x < grid.width; ++x) {
        if (y == 0) fill(first + x, 2, width_begin, x - left);
        copy(picture_begin, first + x, 0, height_begin);
        copy(first, first + x, height_begin, width_begin - height_begin);
        copy(picture_begin + x, first + x, width_begin, half - width_begin);
      }
    }
    picture_begin += grid.tokens();
  }
  return rope;
}

Tensor TimeProjection(const TransformerConfig& config, float timestep) {
  constexpr int64_t kHalf = kTimeChannels / 2;
  const int64_t rows = config.zero_cond_t ? 2 : 1;
  Tensor time_proj({rows, kTimeChannels});
  for (int64_t row = 0; row < rows; ++row) {
    const float t = row == 0 ? timestep : 0.0f;
    for (int64_t i = 0; i < kHalf; ++i) {
      const float exponent =
          static_cast<float>(-std::log(10000.0)) * static_cast<float>(i) / static_cast<float>(kHalf);
      const float angle = 1000.0f * (t * std::exp(exponent));
      time_proj.row(row)[i] = std::cos(angle);
      time_proj.row(row)[kHalf + i] = std::sin(angle);
    }
  }
  return time_proj;
}

}  // namespace qwen_image
