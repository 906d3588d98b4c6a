// What LoRA files call their tensors, brought to the names of diffusers' modules.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "families/vocabulary.h"
#include "families/weight_names.h"

namespace qwen_image::lora {

// A layer becomes W + alpha / rank · up · down.
enum class Part { kDown, kUp, kAlpha };

struct TensorName {
  Part part = Part::kDown;
  std::string module;  // "transformer_blocks.0.attn.to_q"; where flat, "transformer_blocks_0_attn_to_q"
  bool flat = false;   // underscores stand for the module's dots
};

// Known prefixes: diffusion_model. (ComfyUI), transformer. (diffusers), base_model.model. (PEFT), lora_unet_
// (kohya; flat), none; known endings: lora_up and lora_down, lora.up and lora.down, lora_A and lora_B, these
// also with .default; alpha. Modules may have the names that other tools give to the family's. Nothing: no
// tensor of a LoRA.
std::optional<TensorName> ParseName(std::string_view stored_name,
                                    const WeightNames& family = *Vocabularies()[0]->weights);

// The family whose transformer the LoRA is for, recognized by layers that no other family has
// (WeightNames::own_layers). Null: it changes only layers that several families have.
const Vocabulary* FamilyOf(std::span<const std::string_view> stored_names);

// Whether names begin as PEFT saves them, beside an adapter_config.json.
bool HasPeftPrefix(std::string_view stored_name);

// What a tensor that ParseName may or may not know is a part of, if such files are refused: "DoRA",
// "a LoRA for the text encoder"; else empty.
std::string_view RefusedAdapterKind(std::string_view stored_name);

// Those of `candidates` that take the fewest changed letters, best first.
std::vector<std::string> NearestLayers(std::string_view name, const std::vector<std::string>& candidates,
                                       size_t at_most);

// 4 or 8 if a text, a name of a file usually, speaks of a Lightning LoRA ("…-Lightning-8steps-V1.0"); else 0.
int64_t LightningSteps(std::string_view text);

}  // namespace qwen_image::lora
