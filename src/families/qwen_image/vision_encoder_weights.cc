// The vision encoder's table of weights.
#include <fmt/format.h>

#include <algorithm>

#include "families/qwen_image/vision_encoder.h"

namespace qwen_image {
namespace {

VisionEncoderWeights::SelfAttention BindAttention(int64_t hidden, const WeightStore& store,
                                                  WeightBinder& binder, const std::string& name,
                                                  Precision precision) {
  const auto linear = [&](const char* part, int64_t out) {
    return BindLinear(binder, name + part, out, hidden, Bias::kYes, precision);
  };
  VisionEncoderWeights::SelfAttention attn;
  if (store.Find(name + "q.weight")) {
    for (const char* part : {"q", "k", "v"}) attn.qkv.push_back(linear(part, hidden));
  } else {
    attn.qkv.push_back(linear("qkv", 3 * hidden));
  }
  attn.proj = linear("proj", hidden);
  return attn;
}

}  // namespace

VisionEncoderWeights::VisionEncoderWeights(const VisionEncoderConfig& config, WeightStore& store,
                                           Precision precision) {
  const int64_t hidden = config.hidden_size, intermediate = config.intermediate_size;
  const int64_t merged = hidden * config.merge_unit();

  WeightBinder binder(store);
  const auto linear = [&](const std::string& name, int64_t out, int64_t in) {
    return BindLinear(binder, name, out, in, Bias::kYes, precision);
  };
  patch_embed_proj_ = BindPatchEmbed("model.visual.patch_embed.proj", hidden, config.patch(), store, binder);
  patch_embed.weight = {
      .data = patch_embed_proj_.data(), .dtype = DType::kF32, .rows = hidden, .cols = config.patch_values()};
  for (int64_t i = 0; i < config.depth; ++i) {
    const std::string block = fmt::format("model.visual.blocks.{}.", i);
    const auto& full = config.fullatt_block_indexes;
    blocks.push_back({
        .norm1 = binder.Floats(block + "norm1.weight", {hidden}),
        .attn = BindAttention(hidden, store, binder, block + "attn.", precision),
        .norm2 = binder.Floats(block + "norm2.weight", {hidden}),
        .mlp = {.gate_proj = linear(block + "mlp.gate_proj", intermediate, hidden),
                .up_proj = linear(block + "mlp.up_proj", intermediate, hidden),
                .down_proj = linear(block + "mlp.down_proj", hidden, intermediate)},
        .full_attention = std::find(full.begin(), full.end(), i) != full.end(),
    });
  }
  merger = {.ln_q = binder.Floats("model.visual.merger.ln_q.weight", {hidden}),
            .mlp_0 = linear("model.visual.merger.mlp.0", merged, merged),
            .mlp_2 = linear("model.visual.merger.mlp.2", config.out_hidden_size, merged)};
  binder.Finish();
}

std::vector<const Linear*> VisionEncoderWeights::AllLayers() const {
  std::vector<const Linear*> all;
  for (const Block& w : blocks) {
    for (const Linear& layer : w.attn.qkv) all.push_back(&layer);
    all.insert(all.end(), {&w.attn.proj, &w.mlp.gate_proj, &w.mlp.up_proj, &w.mlp.down_proj});
  }
  all.insert(all.end(), {&merger.mlp_0, &merger.mlp_2});
  return all;
}

}  // namespace qwen_image
