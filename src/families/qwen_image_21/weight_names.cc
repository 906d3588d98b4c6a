#include "families/qwen_image_21/vocabulary.h"

namespace qwen_image::qwen_image_21 {
namespace {

// Files of ComfyUI, and GGUF files made from them.
constexpr std::string_view kGateUp[] = {".img_mlp.gate_layer", ".img_mlp.proj"};
constexpr FusedRows kFused[] = {{".img_mlp.gate_up", kGateUp}};

// What the older family's components do not have.
constexpr ComponentSign kSigns[] = {
    {Component::kTransformer, "txt_in.text_norm.weight", "the transformer of a Qwen-Image-2.1 model"},
    {Component::kTextEncoder, "model.language_model.layers.0.self_attn.q_norm.weight",
     "a text encoder (Qwen3-VL)"},
    {Component::kVae, "decoder.up_blocks.0.upsampler.resample.1.weight", "a VAE of Qwen-Image-2.1"},
};

constexpr std::string_view kOwnLayers[] = {
    "*.img_mlp.gate_layer", "*.img_mlp.proj",  "*.img_mlp.out",    "*.img_mlp.gate_up",
    "modulation.1",         "txt_in.in_layer", "txt_in.out_layer",
};

constexpr ComponentBeginning kBeginnings[] = {
    {Component::kTransformer, "transformer_blocks."},
    {Component::kTransformer, "img_in."},
    {Component::kTransformer, "txt_in."},
    {Component::kTransformer, "modulation."},
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
    {Component::kTransformer, "_class_name", "QwenImage21Transformer2DModel"},
    {Component::kVae, "_class_name", "AutoencoderKLQwenImage21"},
    {Component::kTextEncoder, "model_type", "qwen3_vl", /*may_go_on=*/true},
    {Component::kVisionEncoder, "model_type", "qwen3_vl", /*may_go_on=*/true},
};

bool Describes(Component component, const Json& config) {
  const auto has = [&](const char* key) { return config.is_object() && config.contains(key); };
  switch (component) {
    case Component::kTransformer:
      return has("num_attention_heads") && has("context_in_dim");
    case Component::kTextEncoder:
      return has("text_config");
    case Component::kVisionEncoder:
      return has("vision_config");
    default:
      return has("z_dim") && has("decoder_base_dim");
  }
}

constexpr WeightRole kRoles[] = {
    {Component::kTransformer, "*.norm_q.weight", "norm"},
    {Component::kTransformer, "*.norm_k.weight", "norm"},
    {Component::kTransformer, "txt_in.text_norm.weight", "norm"},
    {Component::kTransformer, "modulation.1.weight", "modulation", true},
    {Component::kTransformer, "norm_out.linear.weight", "modulation", true},
    {Component::kTransformer, "time_text_embed.*", "time embedding", true},
    {Component::kTransformer, "img_in.weight", "input and output", true},
    {Component::kTransformer, "txt_in.*", "input and output", true},
    {Component::kTransformer, "proj_out.weight", "input and output", true},
    {Component::kTransformer, "*.attn.*", "attention"},
    {Component::kTransformer, "*.img_mlp.*", "mlp"},
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
                                       {"layers", "text_config", "num_hidden_layers"}};

// The VAE's time_conv, which no picture needs, is not bound by its model; ComfyUI has it one frame deep, and
// GGUF may have that folded.
std::vector<int64_t> UnboundShape(std::string_view name, int64_t values,
                                  const std::function<int64_t(const std::string&)>& rows_of) {
  constexpr std::string_view kTimeConv = ".time_conv.weight";
  if (!name.ends_with(kTimeConv)) return {};
  name.remove_suffix(kTimeConv.size());
  const int64_t out = rows_of(std::string(name) + ".time_conv.bias");
  if (out <= 0) return {};
  return {out, values / out, 1, 1};
}

constexpr ZerosReason kReasonsForZeros[] = {
    {"*.time_conv.*", "all zero; it joins frames of a video, and a single picture never meets it"},
    {"*visual.*", "all zero, as before training; drawing from text does not use the vision tower"},
    {"txt_in.text_norm.weight", "all zero, which stands for a scale of 1"},
};

constexpr TiedTensors kTied[] = {{"*embed*", "*lm_head*"}};

constexpr std::string_view kPipelineClasses[] = {"QwenImage21Pipeline"};

}  // namespace

constinit const WeightNames kWeightNames = {.model = "Qwen-Image-2.1",
                                            .renamer = MakeRenamer,
                                            .markers = {},
                                            .fused = kFused,
                                            .signs = kSigns,
                                            .vision_sign = "model.visual.pos_embed.weight",
                                            .own_layers = kOwnLayers,
                                            .text_encoder_architecture = "qwen3vl",
                                            .beginnings = kBeginnings,
                                            .config_classes = kConfigClasses,
                                            .describes = Describes,
                                            .roles = kRoles,
                                            .example_glob = "*.img_mlp.out.weight",
                                            .block_counts = kBlockCounts,
                                            .unbound_shape = UnboundShape,
                                            .reasons_for_zeros = kReasonsForZeros,
                                            .tied = kTied,
                                            .pipeline_classes = kPipelineClasses,
                                            .edit_classes = kPipelineClasses};

}  // namespace qwen_image::qwen_image_21
