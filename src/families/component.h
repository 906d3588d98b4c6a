// The parts of a model that hold weights. Models of every family are made of these.
#pragma once

#include <string_view>

namespace qwen_image {

// The vision encoder is a part of the text encoder, in the same files, that is opened for itself: only edits
// need it, and a file of its own may hold it.
enum class Component { kTextEncoder, kTransformer, kVae, kVisionEncoder };

std::string_view NameOf(Component component);     // "text_encoder", "transformer", "vae", "vision_encoder"
Component ParseComponent(std::string_view name);  // one of the first three; throws Error kUsage

}  // namespace qwen_image
