#include "families/qwen_image_21/config_files.h"

namespace qwen_image::qwen_image_21 {
namespace {

Json VisionConfigJson(const VisionEncoderConfig& config) {
  return {{"model_type", "qwen3_vl"},
          {"deepstack_visual_indexes", config.deepstack_visual_indexes},
          {"depth", config.depth},
          {"hidden_act", "gelu_pytorch_tanh"},
          {"hidden_size", config.hidden_size},
          {"in_channels", config.in_channels},
          {"intermediate_size", config.intermediate_size},
          {"num_heads", config.num_heads},
          {"num_position_embeddings", config.num_position_embeddings},
          {"out_hidden_size", config.out_hidden_size},
          {"patch_size", config.patch_size},
          {"spatial_merge_size", config.spatial_merge_size},
          {"temporal_patch_size", config.temporal_patch_size}};
}

}  // namespace

Json TextEncoderConfigJson(const TextEncoderConfig& config, const WeightStore& store) {
  Json json = {
      {"architectures", {"Qwen3VLForConditionalGeneration"}},
      {"model_type", "qwen3_vl"},
      {"image_token_id", 151655},
      {"video_token_id", 151656},
      {"vision_start_token_id", 151652},
      {"vision_end_token_id", 151653},
      {"text_config",
       {{"model_type", "qwen3_vl_text"},
        {"attention_bias", false},
        {"head_dim", config.head_dim},
        {"hidden_act", "silu"},
        {"hidden_size", config.hidden_size},
        {"intermediate_size", config.intermediate_size},
        {"max_position_embeddings", 262144},
        {"num_attention_heads", config.num_attention_heads},
        {"num_hidden_layers", config.num_hidden_layers},
        {"num_key_value_heads", config.num_key_value_heads},
        {"rms_norm_eps", config.rms_norm_eps},
        {"rope_scaling",
         {{"mrope_interleaved", true}, {"mrope_section", config.mrope_section}, {"rope_type", "default"}}},
        {"rope_theta", config.rope_theta},
        {"vocab_size", config.vocab_size}}},
      {"tie_word_embeddings", store.Find("lm_head.weight") == nullptr},
      {"torch_dtype", "bfloat16"}};
  if (store.CountModules("model.visual.blocks.") > 0)
    json["vision_config"] = VisionConfigJson(ReadVisionEncoderConfig(store));
  return json;
}

Json VaeConfigJson(const VaeConfig& config) {
  return {{"_class_name", "AutoencoderKLQwenImage21"},
          {"attn_scales", Json::array()},
          {"base_dim", config.base_dim},
          {"decoder_base_dim", config.decoder_base_dim},
          {"dim_mult", config.dim_mult},
          {"dropout", 0.0},
          {"in_channels", kPictureChannels},
          {"is_residual", true},
          {"latents_mean", config.latents_mean},
          {"latents_std", config.latents_std},
          {"num_res_blocks", config.num_res_blocks},
          {"out_channels", kPictureChannels},
          {"patch_size", nullptr},
          {"scale_factor_spatial", config.scale_factor()},
          {"scale_factor_temporal", 8},
          {"temperal_downsample", config.temperal_downsample},
          {"z_dim", config.z_dim}};
}

}  // namespace qwen_image::qwen_image_21
