#include "pipeline/config_files.h"

namespace qwen_image {
namespace {

// Of Qwen2.5-VL in every published size, except for what the tensors tell.
Json VisionConfigJson(const TextEncoderConfig& config, const WeightStore& store) {
  return {{"model_type", "qwen2_5_vl"},
          {"depth", store.CountModules("model.visual.blocks.")},
          {"hidden_size", store.Rows("model.visual.patch_embed.proj.weight")},
          {"intermediate_size", store.Rows("model.visual.blocks.0.mlp.gate_proj.weight")},
          {"out_hidden_size", config.hidden_size},
          {"num_heads", 16},
          {"hidden_act", "silu"},
          {"in_channels", 3},
          {"patch_size", 14},
          {"spatial_merge_size", 2},
          {"temporal_patch_size", 2},
          {"tokens_per_second", 2},
          {"window_size", 112},
          {"fullatt_block_indexes", {7, 15, 23, 31}}};
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
  // mrope_section: how the three axes of a picture's positions share the frequencies, 1 : 1.5 : 1.5.
  const int64_t quarter = config.head_dim() / 8;
  const int64_t rest = (config.head_dim() / 2 - quarter) / 2;
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
               {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {quarter, rest, rest}}}},
               {"tie_word_embeddings", store.Find("lm_head.weight") == nullptr},
               {"use_sliding_window", false},
               {"vocab_size", config.vocab_size},
               {"torch_dtype", "bfloat16"}};
  if (store.CountModules("model.visual.blocks.") > 0) json["vision_config"] = VisionConfigJson(config, store);
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

Json SchedulerConfigJson(const SchedulerConfig& config) {
  return {{"_class_name", "FlowMatchEulerDiscreteScheduler"},
          {"base_image_seq_len", config.base_image_seq_len},
          {"base_shift", config.base_shift},
          {"max_image_seq_len", config.max_image_seq_len},
          {"max_shift", config.max_shift},
          {"num_train_timesteps", config.num_train_timesteps},
          {"shift", config.shift},
          {"shift_terminal", config.shift_terminal ? Json(*config.shift_terminal) : Json()},
          {"time_shift_type",
           config.time_shift_type == SchedulerConfig::TimeShift::kLinear ? "linear" : "exponential"},
          {"use_dynamic_shifting", config.use_dynamic_shifting}};
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
