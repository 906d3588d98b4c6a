// What other tools call the tensors of these models, brought to diffusers' names (for the text encoder:
// transformers' names, with everything at `model.language_model.` and `model.visual.`).
#pragma once

#include <string>
#include <string_view>

#include "weights/component.h"

namespace qwen_image {

// Known: diffusers; ComfyUI's single files and checkpoints (prefixes, the VAE's original names); mflux and
// what mlx-community publishes; mlx-rs (`.inner.`); llama.cpp's text encoders and mmproj files. A name that
// needs no change is returned as it is, and empty text is returned for tensors of other components in the
// same file.
std::string DiffusersName(Component component, std::string_view stored_name);

// An empty tensor by which single files say that reference pictures are modulated for t = 0 (Edit-2511).
constexpr std::string_view kZeroCondMarker = "__index_timestep_zero__";

}  // namespace qwen_image
