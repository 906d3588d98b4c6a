#include "families/text_encoder_names.h"

#include <fmt/format.h>

#include "families/checkpoint_prefixes.h"

namespace qwen_image {
namespace {

// "text_encoders.<encoder>.transformer.…", where ComfyUI's name of the encoder is any.
std::string WithoutCheckpointPrefix(std::string_view name) {
  const std::string_view prefix = kCheckpointTextEncoder[0];
  const size_t dot = name.starts_with(prefix) ? name.find('.', prefix.size()) : name.npos;
  if (dot == name.npos) return std::string(name);
  constexpr std::string_view kInner[] = {kTransformerPrefix};
  return RemovePrefix(std::string(name.substr(dot + 1)), kInner);
}

}  // namespace

std::optional<std::string> LlamaCppName(std::string_view name) {
  constexpr Replacement kWhole[] = {{"token_embd.weight", "model.language_model.embed_tokens.weight"},
                                    {"output_norm.weight", "model.language_model.norm.weight"},
                                    {"output.weight", "lm_head.weight"}};
  if (auto whole = ReplaceWhole(name, kWhole)) return whole;
  const auto block = SplitIndex(name, "blk.");
  if (!block) return std::nullopt;
  constexpr Replacement kInBlock[] = {
      {".attn_q.", ".self_attn.q_proj."},      {".attn_k.", ".self_attn.k_proj."},
      {".attn_v.", ".self_attn.v_proj."},      {".attn_output.", ".self_attn.o_proj."},
      {".attn_q_norm.", ".self_attn.q_norm."}, {".attn_k_norm.", ".self_attn.k_norm."},
      {".attn_norm.", ".input_layernorm."},    {".ffn_norm.", ".post_attention_layernorm."},
      {".ffn_gate.", ".mlp.gate_proj."},       {".ffn_up.", ".mlp.up_proj."},
      {".ffn_down.", ".mlp.down_proj."},
  };
  return fmt::format("model.language_model.layers.{}{}", block->index,
                     ReplacePrefix(std::string(block->rest), kInBlock));
}

std::string TextEncoderName(std::string name, std::span<const Replacement> more) {
  name = WithoutCheckpointPrefix(name);
  if (auto found = LlamaCppName(name)) return *found;
  if (name.starts_with("model.language_model.") || name.starts_with("model.visual.")) return name;
  constexpr Replacement kPrefixes[] = {
      {"language_model.model.", "model.language_model."},
      {"language_model.lm_head.", "lm_head."},
      {"model.layers.", "model.language_model.layers."},
      {"model.embed_tokens.", "model.language_model.embed_tokens."},
      {"model.norm.", "model.language_model.norm."},
      {"visual.", "model.visual."},
      {"vision_tower.", "model.visual."},
  };
  const std::string found = ReplacePrefix(name, kPrefixes);
  return found == name ? ReplacePrefix(std::move(name), more) : found;
}

}  // namespace qwen_image
