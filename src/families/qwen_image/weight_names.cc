#include "families/qwen_image/vocabulary.h"

namespace qwen_image {
namespace {

constexpr std::string_view kMarkers[] = {kZeroCondMarker};

constexpr ComponentSign kSigns[] = {
    {Component::kTransformer, "txt_norm.weight", "the transformer of a Qwen-Image model"},
    {Component::kTextEncoder, "model.language_model.embed_tokens.weight", "a text encoder"},
    {Component::kVae, "decoder.conv_in.weight", "a VAE"},
};

constexpr std::string_view kOwnLayers[] = {"*.img_mlp.net.*", "*.txt_mlp.net.*", "*.img_mod.1",
                                           "*.txt_mod.1"};

constexpr ComponentBeginning kBeginnings[] = {
    {Component::kTransformer, "transformer_blocks."},
    {Component::kTransformer, "img_in."},
    {Component::kTransformer, "txt_"},
    {Component::kTransformer, "proj_out."},
    {Component::kTextEncoder, "model.language_model."},
    {Component::kTextEncoder, "model.visual."},
    {Component::kVisionEncoder, "model.visual."},
    {Component::kVae, "encoder."},
    {Component::kVae, "decoder."},
    {Component::kVae, "quant_conv."},
    {Component::kVae, "post_quant_conv."},
};

constexpr ConfigClass kConfigClasses[] = {
    {Component::kTransformer, "_class_name", "QwenImageTransformer2DModel"},
    {Component::kVae, "_class_name", "AutoencoderKLQwenImage"},
    {Component::kTextEncoder, "model_type", "qwen2_5_vl", /*may_go_on=*/true},
    {Component::kVisionEncoder, "model_type", "qwen2_5_vl", /*may_go_on=*/true},
};

bool Describes(Component component, const Json& config) {
  const auto has = [&](const char* key) { return config.is_object() && config.contains(key); };
  switch (component) {
    case Component::kTransformer:
      return has("num_attention_heads") && has("axes_dims_rope");
    case Component::kTextEncoder:
      return has("hidden_size") || has("text_config");
    case Component::kVisionEncoder:
      return has("vision_config");
    default:
      return has("z_dim");
  }
}

constexpr WeightRole kRoles[] = {
    {Component::kTransformer, "*.bias", "bias"},
    {Component::kTransformer, "*.norm_q.weight", "norm"},
    {Component::kTransformer, "*.norm_k.weight", "norm"},
    {Component::kTransformer, "*.norm_added_*.weight", "norm"},
    {Component::kTransformer, "txt_norm.weight", "norm"},
    {Component::kTransformer, "*_mod.1.weight", "modulation", true},
    {Component::kTransformer, "norm_out.linear.weight", "modulation", true},
    {Component::kTransformer, "time_text_embed.*", "time embedding", true},
    {Component::kTransformer, "img_in.weight", "input and output", true},
    {Component::kTransformer, "txt_in.weight", "input and output", true},
    {Component::kTransformer, "proj_out.weight", "input and output", true},
    {Component::kTransformer, "*.attn.*", "attention"},
    {Component::kTransformer, "*_mlp.*", "mlp"},
    {Component::kTextEncoder, "model.visual.*", "vision", true},
    {Component::kTextEncoder, "*.bias", "bias"},
    {Component::kTextEncoder, "*norm.weight", "norm"},
    {Component::kTextEncoder, "*.embed_tokens.weight", "embedding", true},
    {Component::kTextEncoder, "lm_head.weight", "embedding", true},
    {Component::kTextEncoder, "*.self_attn.*", "attention"},
    {Component::kTextEncoder, "*.mlp.*", "mlp"},
    {Component::kVae, "*", "vae"},
};

constexpr BlockCount kBlockCounts[] = {{"transformer_blocks", "", "num_layers"},
                                       {"visual.blocks", "vision_config", "depth"},
                                       {"layers", "text_config", "num_hidden_layers"},
                                       {"layers", "", "num_hidden_layers"}};

// The VAE's time_conv, which no picture needs, is not bound by its model; GGUF may have it folded.
std::vector<int64_t> UnboundShape(std::string_view name, int64_t values,
                                  const std::function<int64_t(const std::string&)>& rows_of) {
  constexpr std::string_view kTimeConv = ".time_conv.weight";
  constexpr int64_t kFrames = 3;
  if (!name.ends_with(kTimeConv)) return {};
  name.remove_suffix(kTimeConv.size());
  const int64_t out = rows_of(std::string(name) + ".time_conv.bias");
  if (out <= 0) return {};
  return {out, values / (out * kFrames), kFrames, 1, 1};
}

constexpr ZerosReason kReasonsForZeros[] = {
    {"*.time_conv.*", "all zero; it joins frames of a video, and a single picture never meets it"},
    {"*visual.*", "all zero, as before training; drawing from text does not use the vision tower"},
};

constexpr TiedTensors kTied[] = {{"*embed*", "*lm_head*"}};

// The text-to-image parts of all of these are the same.
constexpr std::string_view kPipelineClasses[] = {"QwenImagePipeline",         "QwenImageImg2ImgPipeline",
                                                 "QwenImageInpaintPipeline",  "QwenImageEditPipeline",
                                                 "QwenImageEditPlusPipeline", "QwenImageEditInpaintPipeline"};

constexpr std::string_view kEditClasses[] = {"QwenImageEditPipeline", "QwenImageEditPlusPipeline",
                                             "QwenImageEditInpaintPipeline"};

}  // namespace

constinit const WeightNames kQwenImageWeightNames = {.model = "Qwen-Image",
                                                     .renamer = QwenImageRenamer,
                                                     .markers = kMarkers,
                                                     .signs = kSigns,
                                                     .own_layers = kOwnLayers,
                                                     .beginnings = kBeginnings,
                                                     .config_classes = kConfigClasses,
                                                     .describes = Describes,
                                                     .roles = kRoles,
                                                     .example_glob = "*.img_mod.1.weight",
                                                     .block_counts = kBlockCounts,
                                                     .unbound_shape = UnboundShape,
                                                     .reasons_for_zeros = kReasonsForZeros,
                                                     .tied = kTied,
                                                     .pipeline_classes = kPipelineClasses,
                                                     .edit_classes = kEditClasses};

}  // namespace qwen_image
