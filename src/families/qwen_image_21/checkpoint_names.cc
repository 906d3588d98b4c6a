// The names are diffusers' and transformers' module names.
#include "families/qwen_image_21/vocabulary.h"

namespace qwen_image::qwen_image_21 {
namespace {

constexpr std::string_view kTextEncoderBlocks[] = {"model.language_model.embed_tokens",
                                                   "model.language_model.layers.#",
                                                   "model.visual",
                                                   "model.visual.patch_embed",
                                                   "model.visual.merger",
                                                   "model.visual.deepstack_merger_list.#",
                                                   "model.visual.blocks.#"};
constexpr std::string_view kTransformerBlocks[] = {
    "img_in", "txt_in", "time_text_embed", "modulation.1", "norm_out", "proj_out", "transformer_blocks.#"};
constexpr std::string_view kVaeBlocks[] = {
    "quant_conv",       "encoder.conv_in",  "encoder.mid_block",   "encoder.norm_out",
    "encoder.conv_out", "post_quant_conv",  "decoder.conv_in",     "decoder.mid_block",
    "decoder.norm_out", "decoder.conv_out", "decoder.up_blocks.#", "encoder.down_blocks.#"};
constexpr ComponentBlocks kBlocks[] = {
    {"text_encoder", kTextEncoderBlocks}, {"transformer", kTransformerBlocks}, {"vae", kVaeBlocks}};

constexpr std::string_view kBlockLists[] = {"transformer_blocks", "model.language_model.layers",
                                            "model.visual.blocks", "decoder.up_blocks",
                                            "encoder.down_blocks"};

constexpr MatrixRole kMatrices[] = {{"attn.to_q", "q"},
                                    {"attn.to_k", "k"},
                                    {"attn.to_v", "v"},
                                    {"attn.to_out.0", "out"},
                                    {"img_mlp.gate_layer", "FFN gate"},
                                    {"img_mlp.proj", "FFN up"},
                                    {"img_mlp.out", "FFN down"},
                                    {"modulation.1", "modulation"},
                                    {"self_attn.q_proj", "q"},
                                    {"self_attn.k_proj", "k"},
                                    {"self_attn.v_proj", "v"},
                                    {"self_attn.o_proj", "out"},
                                    {"mlp.gate_proj", "FFN gate"},
                                    {"mlp.up_proj", "FFN up"},
                                    {"mlp.down_proj", "FFN down"},
                                    {"img_in", "in and out"},
                                    {"txt_in.in_layer", "in and out"},
                                    {"txt_in.out_layer", "in and out"},
                                    {"proj_out", "in and out"},
                                    {"norm_out.linear", "in and out"},
                                    {"time_text_embed.timestep_embedder.linear_1", "in and out"},
                                    {"time_text_embed.timestep_embedder.linear_2", "in and out"}};

constexpr std::string_view kVision[] = {"model.visual"}, kVaeEncoder[] = {"encoder", "quant_conv"};
constexpr StageNames kStages[] = {{"vision encoder", "text_encoder", kVision, true},
                                  {"text encoder", "text_encoder", {}, true},
                                  {"VAE encoder", "vae", kVaeEncoder},
                                  {"transformer", "transformer", {}, true},
                                  {"VAE decoder", "vae", {}}};

// The one stream begins as no module's output: text and pictures are put together first.
constexpr StreamNames kStreams[] = {{.input = ":joint",
                                     .output = "",
                                     .norm = {".img_norm1", ".img_norm2"},
                                     .modulated = {":modulated1", ":modulated2"},
                                     .attention_residual = ":attn_residual",
                                     .mlp = ".img_mlp",
                                     .query_norm = ".attn.norm_q",
                                     .key_norm = ".attn.norm_k",
                                     .value = ".attn.to_v",
                                     .attention_out = ".attn.to_out.0",
                                     .query_rope = ":query_rope",
                                     .key_rope = ":key_rope"}};
constexpr OneStreamNames kOneStream = {
    .pictures = "img_in", .modulation = "modulation.1", .gates = {":gate1", ":gate2"}};

constexpr ConditionerNames kConditioner = {.layers = "model.language_model.layers",
                                           .deepstack = ":deepstack",
                                           .features = "model.visual.deepstack_merger_list.",
                                           .rope_cos = "model.language_model.rotary_emb:cos",
                                           .rope_sin = "model.language_model.rotary_emb:sin",
                                           .embeds_before_norm = true,
                                           .norm_from_zero = "txt_in.text_norm"};

}  // namespace

const CheckpointNames kCheckpointNames = {.blocks = kBlocks,
                                          .block_lists = kBlockLists,
                                          .matrices = kMatrices,
                                          .stages = kStages,
                                          .denoiser_blocks = "transformer_blocks",
                                          .streams = kStreams,
                                          .one_stream = kOneStream,
                                          .block_end = "",
                                          .before_attention = ":key_rope",
                                          .head_norm = "norm_out",
                                          .velocity = "proj_out",
                                          .rescales_guidance = false,
                                          .time_projection = ".time_proj",
                                          .conditioner = kConditioner,
                                          .example = "transformer/step000/*.attn.to_q"};

}  // namespace qwen_image::qwen_image_21
