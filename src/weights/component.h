// The parts of a model that hold weights.
#pragma once

#include <string_view>

namespace qwen_image {

enum class Component { kTextEncoder, kTransformer, kVae };

std::string_view NameOf(Component component);     // "text_encoder", "transformer", "vae"
Component ParseComponent(std::string_view name);  // throws Error kUsage

}  // namespace qwen_image
