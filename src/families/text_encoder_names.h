// What other tools call the tensors of Qwen's vision-language models, which are the text encoders of several
// families, brought to transformers' names: everything at `model.language_model.` and `model.visual.`.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "families/renaming.h"

namespace qwen_image {

// Of llama.cpp's language models; nothing for a name that is none of theirs.
std::optional<std::string> LlamaCppName(std::string_view name);

// A tensor of a text encoder: in a checkpoint of ComfyUI's, of llama.cpp, mlx-vlm or an older transformers.
// `more`: beginnings of names that only tools of one family write.
std::string TextEncoderName(std::string name, std::span<const Replacement> more);

}  // namespace qwen_image
