// The vision encoder's table of weights.
#include <fmt/format.h>

#include <algorithm>

#include "families/qwen_image/vision_encoder.h"

namespace qwen_image {
namespace {

// As torch has it, [hidden_size, in_channels, temporal_patch_size, patch_size, patch_size]; llama.cpp's files
// hold a tensor for each of the frames.
std::vector<float> BindPatchEmbed(const VisionEncoderConfig& c, const WeightStore& store,
                                  WeightBinder& binder) {
  const std::string name = "model.visual.patch_embed.proj.";
  if (!store.Find(name + "0.weight")) {
    return binder.Floats(name + "weight",
                         {c.hidden_size, c.in_channels, c.temporal_patch_size, c.patch_size, c.patch_size});
  }
  std::vector<std::vector<float>> frames;
  for (int64_t t = 0; t < c.temporal_patch_size; ++t) {
    frames.push_back(binder.Floats(fmt::format("{}{}.weight", name, t),
                                   {c.hidden_size, c.in_channels, c.patch_size, c.patch_size}));
  }
  const auto is_there = [](const std::vector<float>& frame) { return !frame.empty(); };
  if (!std::all_of(frames.begin(), frames.end(), is_there)) return {};  // Finish() says why
  std::vector<float> joined;
  joined.reserve(static_cast<size_t>(c.hidden_size * c.patch_values()));
  const int64_t area = c.patch_size * c.patch_size;
  for (int64_t row = 0; row < c.hidden_size * c.in_channels; ++row) {
    for (const std::vector<float>& frame : frames)
      joined.insert(joined.end(), frame.begin() + row * area, frame.begin() + (row + 1) * area);
  }
  return joined;
}

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
  patch_embed_proj_ = BindPatchEmbed(config, store, binder);
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
