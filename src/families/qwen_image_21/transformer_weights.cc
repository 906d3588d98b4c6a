// The transformer's table of weights, and the tables that follow from sizes.
#include "families/qwen_image_21/transformer_weights.h"

#include <fmt/format.h>

#include <cmath>

namespace qwen_image::qwen_image_21 {
namespace {

constexpr int64_t kTimeChannels = 256;  // width of the sinusoidal timestep embedding
constexpr float kRopeTheta = 10000.0f;

TransformerWeights::Block BindBlock(WeightBinder& binder, const TransformerConfig& config,
                                    const std::string& block, Precision precision) {
  const int64_t dim = config.inner_dim(), head_dim = config.attention_head_dim, mlp = config.mlp_dim();
  const auto linear = [&](const char* name, int64_t out, int64_t in) {
    return BindLinear(binder, block + name, out, in, Bias::kNo, precision);
  };
  return {.to_q = linear(".attn.to_q", dim, dim),
          .to_k = linear(".attn.to_k", dim, dim),
          .to_v = linear(".attn.to_v", dim, dim),
          .to_out = linear(".attn.to_out.0", dim, dim),
          .norm_q = binder.Floats(block + ".attn.norm_q.weight", {head_dim}),
          .norm_k = binder.Floats(block + ".attn.norm_k.weight", {head_dim}),
          .gate_layer = linear(".img_mlp.gate_layer", mlp, dim),
          .proj = linear(".img_mlp.proj", mlp, dim),
          .out = InSmallGroups(linear(".img_mlp.out", dim, mlp))};
}

}  // namespace

// The layers at both ends stay exact: they are small, and everything passes through them. So does the
// modulation, whose two rows steer all blocks.
TransformerWeights::TransformerWeights(const TransformerConfig& config, WeightStore& store, lora::Set& loras,
                                       Precision precision) {
  const int64_t dim = config.inner_dim();
  WeightBinder binder(store, &loras);
  const auto linear = [&](const char* name, int64_t out, int64_t in) {
    return BindLinear(binder, name, out, in, Bias::kNo);
  };
  img_in = linear("img_in", dim, config.in_channels);
  text_norm = binder.Floats("txt_in.text_norm.weight", {config.context_in_dim});
  for (float& weight : text_norm) weight += 1.0f;
  txt_in_layer = linear("txt_in.in_layer", dim, config.context_in_dim);
  txt_out_layer = linear("txt_in.out_layer", dim, dim);
  time_linear_1 = linear("time_text_embed.timestep_embedder.linear_1", dim, kTimeChannels);
  time_linear_2 = linear("time_text_embed.timestep_embedder.linear_2", dim, dim);
  modulation = linear("modulation.1", kModulationParts * dim, dim);
  for (int64_t i = 0; i < config.num_layers; ++i)
    transformer_blocks.push_back(
        BindBlock(binder, config, fmt::format("transformer_blocks.{}", i), precision));
  norm_out_linear = linear("norm_out.linear", dim, dim);
  proj_out = linear("proj_out", config.out_channels, dim);
  binder.Finish();
}

std::vector<const Linear*> LayersOf(const TransformerWeights::Block& block) {
  return {&block.to_q, &block.to_k, &block.to_v, &block.to_out, &block.gate_layer, &block.proj, &block.out};
}

std::vector<const Linear*> TransformerWeights::AllLayers() const {
  std::vector<const Linear*> layers = {&img_in,        &txt_in_layer, &txt_out_layer,   &time_linear_1,
                                       &time_linear_2, &modulation,   &norm_out_linear, &proj_out};
  for (const Block& block : transformer_blocks) {
    const std::vector<const Linear*> inside = LayersOf(block);
    layers.insert(layers.end(), inside.begin(), inside.end());
  }
  return layers;
}

RopeTable MakeRope(const TransformerConfig& config, const JointSequence& sequence) {
  const std::vector<Position> positions = PositionsOf(sequence);
  const auto tokens = static_cast<int64_t>(positions.size());
  RopeTable rope{Tensor({tokens, config.attention_head_dim / 2}),
                 Tensor({tokens, config.attention_head_dim / 2})};
  // The axes' shares of a row lie one behind the other.
  int64_t begin = 0;
  for (size_t axis = 0; axis < 3; ++axis) {
    const int64_t width = config.axes_dims_rope[axis];
    std::vector<float> frequencies;
    for (int64_t i = 0; i < width; i += 2)
      frequencies.push_back(1.0f / std::pow(kRopeTheta, static_cast<float>(i) / static_cast<float>(width)));
    const int64_t Position::*const coordinate =
        std::array{&Position::frame, &Position::height, &Position::width}[axis];
    for (int64_t t = 0; t < tokens; ++t) {
      const auto position = static_cast<float>(positions[static_cast<size_t>(t)].*coordinate);
      for (size_t i = 0; i < frequencies.size(); ++i) {
        const float angle = position * frequencies[i];
        rope.cos.row(t)[begin + static_cast<int64_t>(i)] = std::cos(angle);
        rope.sin.row(t)[begin + static_cast<int64_t>(i)] = std::sin(angle);
      }
    }
    begin += width / 2;
  }
  return rope;
}

Tensor TimeProjection(float timestep) {
  constexpr int64_t kHalf = kTimeChannels / 2;
  Tensor time_proj({2, kTimeChannels});
  for (const int64_t row : {kTargetRow, kPrefixRow}) {
    // In the reference's order: the older family multiplies by the 1000 last.
    const float t = row == kTargetRow ? 1000.0f * timestep : 0.0f;
    for (int64_t i = 0; i < kHalf; ++i) {
      const float exponent =
          static_cast<float>(-std::log(10000.0)) * static_cast<float>(i) / static_cast<float>(kHalf);
      const float angle = t * std::exp(exponent);
      time_proj.row(row)[i] = std::cos(angle);
      time_proj.row(row)[kHalf + i] = std::sin(angle);
    }
  }
  return time_proj;
}

}  // namespace qwen_image::qwen_image_21
