#include "families/component.h"

#include "core/fail.h"
#include "files/text.h"

namespace qwen_image {

std::string_view NameOf(Component component) {
  switch (component) {
    case Component::kTextEncoder:
      return "text_encoder";
    case Component::kTransformer:
      return "transformer";
    case Component::kVisionEncoder:
      return "vision_encoder";
    default:
      return "vae";
  }
}

Component ParseComponent(std::string_view name) {
  for (const Component component : {Component::kTextEncoder, Component::kTransformer, Component::kVae}) {
    if (name == NameOf(component)) return component;
  }
  Fail(ErrorKind::kUsage, "there is no component {}; known are text_encoder, transformer and vae",
       Quoted(name));
}

}  // namespace qwen_image
