// How a model of Qwen-Image edits: as which variant, at which sizes, with which template.
#pragma once

#include <span>
#include <vector>

#include "families/edit_sizes.h"
#include "families/qwen_image/prompt.h"
#include "families/qwen_image/recognized_variant.h"
#include "weights/model_defaults.h"

namespace qwen_image {

struct EditModel {
  RecognizedVariant variant;
  EditAreas areas;

  EditModel() = default;
  EditModel(RecognizedVariant recognized, EditAreas its_areas)
      : variant(std::move(recognized)), areas(its_areas) {}
  EditModel(RecognizedVariant recognized, const ModelDefaults& own);

  // ModelTraits::plan_edit
  std::vector<EditInputSizes> Plan(std::span<const ImageSize> inputs, bool repairs) const;
  EditTemplate TemplateFor(bool repairs) const;

 private:
  void CheckCanEdit(size_t images) const;
};

}  // namespace qwen_image
