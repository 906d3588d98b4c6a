// ComfyUI's checkpoints hold a whole model in one file. The prefixes of names tell its components apart, in
// those of every family.
#pragma once

#include <string_view>

namespace qwen_image {

// In the order in which they are looked for.
inline constexpr std::string_view kCheckpointTransformer[] = {"model.diffusion_model.", "diffusion_model."};
inline constexpr std::string_view kCheckpointVae[] = {"first_stage_model.", "vae."};
inline constexpr std::string_view kCheckpointTextEncoder[] = {"text_encoders."};

// diffusers' name of the component, which LoRA files put before the names of its modules.
inline constexpr std::string_view kTransformerPrefix = "transformer.";

}  // namespace qwen_image
