#include "families/qwen_image_21/variant.h"

namespace qwen_image::qwen_image_21 {

std::string_view NameOf(Variant variant) { return variant == Variant::kTurbo ? "2.1-turbo" : "2.1"; }

std::optional<Variant> ParseVariant(std::string_view name) {
  for (const Variant variant : {Variant::kBase, Variant::kTurbo}) {
    if (name == NameOf(variant)) return variant;
  }
  return std::nullopt;
}

const std::vector<std::string>& VariantNames() {
  static const std::vector<std::string> kNames = {std::string(NameOf(Variant::kBase)),
                                                  std::string(NameOf(Variant::kTurbo))};
  return kNames;
}

}  // namespace qwen_image::qwen_image_21
