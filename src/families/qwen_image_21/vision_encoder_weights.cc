// The vision encoder's table of weights.
#include <fmt/format.h>

#include "families/qwen_image_21/vision_encoder.h"

namespace qwen_image::qwen_image_21 {

VisionEncoderWeights::VisionEncoderWeights(const VisionEncoderConfig& config, WeightStore& store,
                                           Precision precision) {
  const int64_t hidden = config.hidden_size, intermediate = config.intermediate_size;
  const int64_t merged = config.merged_width();

  WeightBinder binder(store);
  const auto linear = [&](const std::string& name, int64_t out, int64_t in) {
    return BindLinear(binder, name, out, in, Bias::kYes, precision);
  };
  const auto layer_norm = [&](const std::string& name, int64_t width) {
    return LayerNorm{.weight = binder.Floats(name + ".weight", {width}),
                     .bias = binder.Floats(name + ".bias", {width})};
  };
  const auto bind_merger = [&](const std::string& name, int64_t norm_width) {
    return Merger{.norm = layer_norm(name + "norm", norm_width),
                  .linear_fc1 = linear(name + "linear_fc1", merged, merged),
                  .linear_fc2 = linear(name + "linear_fc2", config.out_hidden_size, merged)};
  };

  patch_embed_proj_ = BindPatchEmbed("model.visual.patch_embed.proj", hidden, config.patch(), store, binder);
  patch_embed.weight = {.data = patch_embed_proj_.data(),
                        .dtype = DType::kF32,
                        .rows = hidden,
                        .cols = config.patch().values()};
  patch_embed.bias = binder.Floats("model.visual.patch_embed.proj.bias", {hidden});
  pos_embed = binder.Floats("model.visual.pos_embed.weight", {config.num_position_embeddings, hidden});
  for (int64_t i = 0; i < config.depth; ++i) {
    const std::string block = fmt::format("model.visual.blocks.{}.", i);
    blocks.push_back({.norm1 = layer_norm(block + "norm1", hidden),
                      .attn = {.qkv = linear(block + "attn.qkv", 3 * hidden, hidden),
                               .proj = linear(block + "attn.proj", hidden, hidden)},
                      .norm2 = layer_norm(block + "norm2", hidden),
                      .mlp = {.linear_fc1 = linear(block + "mlp.linear_fc1", intermediate, hidden),
                              .linear_fc2 = linear(block + "mlp.linear_fc2", hidden, intermediate)}});
  }
  merger = bind_merger("model.visual.merger.", hidden);
  for (size_t i = 0; i < config.deepstack_visual_indexes.size(); ++i)
    deepstack_merger_list.push_back(
        bind_merger(fmt::format("model.visual.deepstack_merger_list.{}.", i), merged));
  binder.Finish();
}

std::vector<const Linear*> VisionEncoderWeights::AllLayers() const {
  std::vector<const Linear*> all;
  for (const Block& w : blocks)
    all.insert(all.end(), {&w.attn.qkv, &w.attn.proj, &w.mlp.linear_fc1, &w.mlp.linear_fc2});
  all.insert(all.end(), {&merger.linear_fc1, &merger.linear_fc2});
  for (const Merger& w : deepstack_merger_list) all.insert(all.end(), {&w.linear_fc1, &w.linear_fc2});
  return all;
}

}  // namespace qwen_image::qwen_image_21
