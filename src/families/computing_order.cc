#include "families/computing_order.h"

#include <algorithm>

#include "families/checkpoint_names.h"
#include "files/numbers.h"

namespace qwen_image {
namespace {

// The way of a picture, in words of the engine. What ends in '/' holds the modules of a component.
struct Stage {
  std::string_view pattern;
  char loop;  // stages of one loop come in turns; ' ': none
};
constexpr Stage kStages[] = {{"input_ids", ' '},
                             {"pixel_values", ' '},
                             {"image_grid_thw", ' '},
                             {"position_ids", ' '},
                             {"text_encoder/", ' '},
                             {"prompt_embeds", ' '},
                             {"prompt_embeds_mask", ' '},
                             {"negative_input_ids", ' '},
                             {"negative_position_ids", ' '},
                             {"text_encoder.neg/", ' '},
                             {"negative_prompt_embeds", ' '},
                             {"negative_prompt_embeds_mask", ' '},
                             {"vae_image#", 'v'},
                             {"vae.image#/", 'v'},
                             {"vae_encode/", ' '},
                             {"image_latents", ' '},
                             {"noise_packed", ' '},
                             {"sigmas", ' '},
                             {"timesteps", ' '},
                             {"initial_latents_packed", ' '},
                             {"mask_packed", ' '},
                             {"packed_latents_step#", 's'},
                             {"transformer/step#/", 's'},
                             {"transformer/step#.neg/", 's'},
                             {"noise_pred_step#", 's'},
                             {"final_latents_packed", ' '},
                             {"vae/pre_decode_latents", ' '},
                             {"vae/", ' '},
                             {"image", ' '},
                             {"image_tiled", ' '}};

// The numbers at the '#' of `pattern`, if `text` is it.
std::optional<Place> NumbersIn(std::string_view pattern, std::string_view text) {
  if (!MatchesNumbered(pattern, text)) return {};
  Place numbers;
  for (; !pattern.empty(); pattern.remove_prefix(1)) {
    size_t length = 1;
    if (pattern.front() == '#') {
      length = std::min(text.find_first_not_of("0123456789"), text.size());
      const auto number = ParseWhole(text.substr(0, length));
      if (!number || *number > INT32_MAX) return {};
      numbers.push_back(static_cast<int64_t>(*number));
    }
    text.remove_prefix(length);
  }
  return numbers;
}

// `pattern` up to its '#' of this number, counted from 0; empty if it has fewer.
std::string_view UpToNumber(std::string_view pattern, size_t which) {
  size_t at = pattern.find('#');
  for (; which > 0 && at != pattern.npos; --which) at = pattern.find('#', at + 1);
  return at == pattern.npos ? std::string_view() : pattern.substr(0, at + 1);
}

std::optional<Place> PlaceOfModule(const std::vector<std::string_view>& modules, std::string_view module) {
  for (size_t i = 0; i < modules.size(); ++i) {
    const auto numbers = NumbersIn(modules[i], module);
    if (!numbers) continue;
    Place place;
    for (size_t n = 0; n < numbers->size(); ++n) {
      size_t first = i;
      while (first > 0 && UpToNumber(modules[first - 1], n) == UpToNumber(modules[i], n)) --first;
      place.push_back(static_cast<int64_t>(first));
      place.push_back((*numbers)[n]);
    }
    place.push_back(static_cast<int64_t>(i));
    return place;
  }
  return {};
}

Place PlaceOfStage(const Stage* stage, const Place& numbers) {
  const Stage* first = stage;
  while (stage->loop != ' ' && first != kStages && first[-1].loop == stage->loop) --first;
  Place place = {first - kStages};
  place.insert(place.end(), numbers.begin(), numbers.end());
  if (stage->loop != ' ') place.push_back(stage - kStages);
  return place;
}

}  // namespace

std::optional<Place> PlaceOf(const std::vector<ComponentOrder>& order, std::string_view checkpoint) {
  const std::string_view module = ModuleOf(checkpoint);
  const std::string_view pass = checkpoint.substr(0, checkpoint.size() - module.size());
  for (const Stage& stage : kStages) {
    const bool holds_modules = stage.pattern.ends_with('/');
    const auto numbers = NumbersIn(stage.pattern, holds_modules ? pass : checkpoint);
    if (!numbers) continue;
    Place place = PlaceOfStage(&stage, *numbers);
    if (!holds_modules) return place;
    for (const ComponentOrder& component : order) {
      if (!pass.starts_with(component.component)) continue;
      if (const auto inside = PlaceOfModule(component.modules, module)) {
        place.insert(place.end(), inside->begin(), inside->end());
        return place;
      }
    }
  }
  return {};
}

std::vector<std::string_view> QwenTextEncoderOrder() {
  return {"model.visual.patch_embed",
          "model.visual:positioned",
          "model.visual.blocks.#.norm1",
          "model.visual.blocks.#.attn.qkv",
          "model.visual.blocks.#.attn.proj",
          "model.visual.blocks.#.attn",
          "model.visual.blocks.#.norm2",
          "model.visual.blocks.#.mlp.gate_proj",
          "model.visual.blocks.#.mlp.up_proj",
          "model.visual.blocks.#.mlp.down_proj",
          "model.visual.blocks.#.mlp.linear_fc1",
          "model.visual.blocks.#.mlp.linear_fc2",
          "model.visual.blocks.#.mlp",
          "model.visual.blocks.#",
          "model.visual.deepstack_merger_list.#.norm",
          "model.visual.deepstack_merger_list.#.linear_fc1",
          "model.visual.deepstack_merger_list.#.linear_fc2",
          "model.visual.deepstack_merger_list.#",
          "model.visual.merger.ln_q",
          "model.visual.merger.mlp.#",
          "model.visual.merger.norm",
          "model.visual.merger.linear_fc1",
          "model.visual.merger.linear_fc2",
          "model.visual.merger",
          "model.visual",
          "model.language_model.embed_tokens",
          "model.language_model.rotary_emb:cos",
          "model.language_model.rotary_emb:sin",
          "model.language_model.layers.#.input_layernorm",
          "model.language_model.layers.#.self_attn.q_proj",
          "model.language_model.layers.#.self_attn.q_norm",
          "model.language_model.layers.#.self_attn.k_proj",
          "model.language_model.layers.#.self_attn.k_norm",
          "model.language_model.layers.#.self_attn.v_proj",
          "model.language_model.layers.#.self_attn.o_proj",
          "model.language_model.layers.#.self_attn",
          "model.language_model.layers.#.post_attention_layernorm",
          "model.language_model.layers.#.mlp.gate_proj",
          "model.language_model.layers.#.mlp.up_proj",
          "model.language_model.layers.#.mlp.down_proj",
          "model.language_model.layers.#.mlp",
          "model.language_model.layers.#",
          "model.language_model.layers.#:deepstack",
          "model.language_model.norm"};
}

std::vector<std::string_view> WanVaeOrder() {
  return {"input",
          "encoder.conv_in",
          "encoder.down_blocks.#.conv_shortcut",
          "encoder.down_blocks.#.norm1",
          "encoder.down_blocks.#.conv1",
          "encoder.down_blocks.#.norm2",
          "encoder.down_blocks.#.conv2",
          "encoder.down_blocks.#.resample.#",
          "encoder.down_blocks.#.resnets.#.conv_shortcut",
          "encoder.down_blocks.#.resnets.#.norm1",
          "encoder.down_blocks.#.resnets.#.conv1",
          "encoder.down_blocks.#.resnets.#.norm2",
          "encoder.down_blocks.#.resnets.#.conv2",
          "encoder.down_blocks.#.resnets.#",
          "encoder.down_blocks.#.downsampler.resample.#",
          "encoder.down_blocks.#.downsampler",
          "encoder.down_blocks.#.avg_shortcut",
          "encoder.down_blocks.#",
          "encoder.mid_block.resnets.0.norm1",
          "encoder.mid_block.resnets.0.conv1",
          "encoder.mid_block.resnets.0.norm2",
          "encoder.mid_block.resnets.0.conv2",
          "encoder.mid_block.resnets.0",
          "encoder.mid_block.attentions.0.norm",
          "encoder.mid_block.attentions.0.to_qkv",
          "encoder.mid_block.attentions.0.proj",
          "encoder.mid_block.attentions.0",
          "encoder.mid_block.resnets.1.norm1",
          "encoder.mid_block.resnets.1.conv1",
          "encoder.mid_block.resnets.1.norm2",
          "encoder.mid_block.resnets.1.conv2",
          "encoder.mid_block.resnets.1",
          "encoder.mid_block",
          "encoder.norm_out",
          "encoder.conv_out",
          "quant_conv",
          "moments",
          "mode",
          "moments_tiled",
          "mode_tiled",
          "post_quant_conv",
          "decoder.conv_in",
          "decoder.mid_block.resnets.0.norm1",
          "decoder.mid_block.resnets.0.conv1",
          "decoder.mid_block.resnets.0.norm2",
          "decoder.mid_block.resnets.0.conv2",
          "decoder.mid_block.resnets.0",
          "decoder.mid_block.attentions.0.norm",
          "decoder.mid_block.attentions.0.to_qkv",
          "decoder.mid_block.attentions.0.proj",
          "decoder.mid_block.attentions.0",
          "decoder.mid_block.resnets.1.norm1",
          "decoder.mid_block.resnets.1.conv1",
          "decoder.mid_block.resnets.1.norm2",
          "decoder.mid_block.resnets.1.conv2",
          "decoder.mid_block.resnets.1",
          "decoder.mid_block",
          "decoder.up_blocks.#.resnets.#.conv_shortcut",
          "decoder.up_blocks.#.resnets.#.norm1",
          "decoder.up_blocks.#.resnets.#.conv1",
          "decoder.up_blocks.#.resnets.#.norm2",
          "decoder.up_blocks.#.resnets.#.conv2",
          "decoder.up_blocks.#.resnets.#",
          "decoder.up_blocks.#.upsamplers.#.resample.#",
          "decoder.up_blocks.#.upsamplers.#",
          "decoder.up_blocks.#.upsampler.resample.#",
          "decoder.up_blocks.#.upsampler",
          "decoder.up_blocks.#.avg_shortcut",
          "decoder.up_blocks.#",
          "decoder.norm_out",
          "decoder.conv_out"};
}

}  // namespace qwen_image
