#include "families/qwen_image/variant.h"

namespace qwen_image {
namespace {

constexpr std::string_view kTextToImageClass = "QwenImagePipeline", kEditClass = "QwenImageEditPipeline",
                           kEditPlusClass = "QwenImageEditPlusPipeline";

struct Row {
  Variant variant;
  std::string_view name, pipeline_class;
};
constexpr Row kRows[] = {{Variant::kTextToImage, "qwen-image", kTextToImageClass},
                         {Variant::kEdit, "edit", kEditClass},
                         {Variant::kEdit2509, "edit-2509", kEditPlusClass},
                         {Variant::kEdit2511, "edit-2511", kEditPlusClass}};

}  // namespace

std::string_view NameOf(Variant variant) {
  for (const Row& row : kRows) {
    if (row.variant == variant) return row.name;
  }
  return "";
}

std::optional<Variant> ParseVariant(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.variant;
  }
  return std::nullopt;
}

const std::vector<std::string>& VariantNames() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Row& row : kRows) names.emplace_back(row.name);
    return names;
  }();
  return kNames;
}

std::string_view PipelineClassOf(Variant variant) {
  for (const Row& row : kRows) {
    if (row.variant == variant) return row.pipeline_class;
  }
  return kTextToImageClass;
}

Variant VariantOfPipelineClass(std::string_view pipeline_class) {
  if (pipeline_class.empty()) return Variant::kUnknown;
  if (pipeline_class == kEditPlusClass) return Variant::kEdit2509;
  // Kin of the class, such as QwenImageEditInpaintPipeline, count as Edit.
  constexpr std::string_view kEditStem = "QwenImageEdit";
  return pipeline_class.starts_with(kEditStem) ? Variant::kEdit : Variant::kTextToImage;
}

}  // namespace qwen_image
