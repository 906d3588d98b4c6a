// The members of the Qwen-Image family, and what they are called.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qwen_image {

enum class Variant {
  kUnknown,      // the files do not tell
  kTextToImage,  // Qwen-Image, also 2512
  kEdit,
  kEdit2509,
  kEdit2511,
};

std::string_view NameOf(Variant variant);  // "qwen-image", "edit", "edit-2509", "edit-2511"; "" for kUnknown
std::optional<Variant> ParseVariant(std::string_view name);  // nothing for other names, and for ""
const std::vector<std::string>& VariantNames();              // of all but kUnknown

constexpr bool Edits(Variant variant) {
  return variant != Variant::kUnknown && variant != Variant::kTextToImage;
}

// diffusers' pipeline class that a model_index.json names for the variant, and back. Edit-2511 has the class
// of Edit-2509. kUnknown counts as text to image. An empty class tells nothing.
std::string_view PipelineClassOf(Variant variant);
Variant VariantOfPipelineClass(std::string_view pipeline_class);

}  // namespace qwen_image
