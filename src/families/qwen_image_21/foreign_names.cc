// What other tools call the tensors of Qwen-Image-2.1, brought to diffusers' names (for the text encoder:
// transformers' names, with everything at `model.language_model.` and `model.visual.`). A name that needs no
// change stays as it is.
#include "families/checkpoint_prefixes.h"
#include "families/qwen_image_21/vocabulary.h"
#include "families/renaming.h"

namespace qwen_image::qwen_image_21 {
namespace {

std::string TransformerName(std::string name) {
  constexpr std::string_view kPrefixes[] = {kCheckpointTransformer[0], kCheckpointTransformer[1],
                                            kTransformerPrefix};
  return RemovePrefix(std::move(name), kPrefixes);
}

std::string TextEncoderName(std::string name) {
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
  return ReplacePrefix(std::move(name), kPrefixes);
}

// Of a text encoder the tensors of its vision tower only; all of a file that holds a tower alone.
std::string VisionEncoderName(std::string name) {
  name = TextEncoderName(std::move(name));
  return name.starts_with("model.visual.") ? name : "";
}

std::string OfficialName(Component component, std::string_view stored_name) {
  if (BelongsToAnother(component, stored_name)) return "";
  std::string name(stored_name);
  switch (component) {
    case Component::kTransformer:
      return TransformerName(std::move(name));
    case Component::kTextEncoder:
      return TextEncoderName(std::move(name));
    case Component::kVisionEncoder:
      return VisionEncoderName(std::move(name));
    default:
      return RemovePrefix(std::move(name), kCheckpointVae);
  }
}

}  // namespace

Renamer MakeRenamer(Component component, std::span<const std::string_view>, const Json&) {
  return [=](std::string_view stored_name) { return OfficialName(component, stored_name); };
}

}  // namespace qwen_image::qwen_image_21
