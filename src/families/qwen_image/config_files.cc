#include "families/qwen_image/config_files.h"

namespace qwen_image {
namespace {

Json VisionConfigJson(const VisionEncoderConfig& config) {
  return {{"model_type", "qwen2_5_vl"},
          {"depth", config.depth},
          {"hidden_size", config.hidden_size},
          {"intermediate_size", config.intermediate_size},
          {"out_hidden_size", config.out_hidden_size},
          {"num_heads", config.num_heads},
          {"hidden_act", "silu"},
          {"in_channels", config.in_channels},
          {"patch_size", config.patch_size},
          {"spatial_merge_size", config.spatial_merge_size},
          {"temporal_patch_size", config.temporal_patch_size},
          {"tokens_per_second", 2},  // of Qwen2.5-VL in every published size
          {"window_size", config.window_size},
          {"fullatt_block_indexes", config.fullatt_block_indexes}};
}

}  // namespace

Json TransformerConfigJson(const TransformerConfig& config) {
  return {{"_class_name", "QwenImageTransformer2DModel"},
          {"attention_head_dim", config.attention_head_dim},
          {"axes_dims_rope", config.axes_dims_rope},
          {"guidance_embeds", false},
          {"in_channels", config.in_channels},
          {"joint_attention_dim", config.joint_attention_dim},
          {"num_attention_heads", config.num_attention_heads},
          {"num_layers", config.num_layers},
          {"out_channels", config.out_channels},
          {"patch_size", config.patch_size},
          {"zero_cond_t", config.zero_cond_t}};
}

// Flat, as the published model has it: both generations of transformers read that.
Json TextEncoderConfigJson(const TextEncoderConfig& config, const WeightStore& store) {
  Json json = {{"architectures", {"Qwen2_5_VLForConditionalGeneration"}},
               {"model_type", "qwen2_5_vl"},
               {"hidden_act", "silu"},
               {"hidden_size", config.hidden_size},
               {"intermediate_size", config.intermediate_size},
               {"num_attention_heads", config.num_attention_heads},
               {"num_hidden_layers", config.num_hidden_layers},
               {"num_key_value_heads", config.num_key_value_heads},
               {"max_position_embeddings", 128000},
               {"rms_norm_eps", config.rms_norm_eps},
               {"rope_theta", config.rope_theta},
               {"rope_scaling", {{"type", "mrope"}, {"mrope_section", config.mrope_section}}},
               {"tie_word_embeddings", store.Find("lm_head.weight") == nullptr},
               {"use_sliding_window", false},
               {"vocab_size", config.vocab_size},
               {"torch_dtype", "bfloat16"}};
  if (store.CountModules("model.visual.blocks.") > 0)
    json["vision_config"] = VisionConfigJson(ReadVisionEncoderConfig(store));
  return json;
}

Json VaeConfigJson(const VaeConfig& config) {
  return {{"_class_name", "AutoencoderKLQwenImage"},
          {"attn_scales", config.attn_scales},
          {"base_dim", config.base_dim},
          {"dim_mult", config.dim_mult},
          {"dropout", 0.0},
          {"latents_mean", config.latents_mean},
          {"latents_std", config.latents_std},
          {"num_res_blocks", config.num_res_blocks},
          {"temperal_downsample", {false, true, true}},  // diffusers' spelling
          {"z_dim", config.z_dim}};
}

Json ModelIndexJson(const std::string& pipeline_class, bool with_processor) {
  Json json = {{"_class_name", pipeline_class},
               {"scheduler", {"diffusers", "FlowMatchEulerDiscreteScheduler"}},
               {"text_encoder", {"transformers", "Qwen2_5_VLForConditionalGeneration"}},
               {"tokenizer", {"transformers", "Qwen2Tokenizer"}},
               {"transformer", {"diffusers", "QwenImageTransformer2DModel"}},
               {"vae", {"diffusers", "AutoencoderKLQwenImage"}}};
  if (with_processor) json["processor"] = {"transformers", "Qwen2VLProcessor"};
  return json;
}

}  // namespace qwen_image
