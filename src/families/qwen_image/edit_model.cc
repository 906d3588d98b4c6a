#include "families/qwen_image/edit_model.h"

#include "core/fail.h"

namespace qwen_image {

EditModel::EditModel(RecognizedVariant recognized, const ModelDefaults& own)
    : variant(std::move(recognized)) {
  areas.vae_area = own.vae_area.value_or(areas.vae_area);
  if (own.condition_area) areas.condition_area = own.condition_area;
}

// The official pipeline for masks does as that of Qwen-Image-Edit, whatever the model: its template, and one
// size for the VAE and the vision encoder.
EditTemplate EditModel::TemplateFor(bool repairs) const {
  return repairs || variant.edit == Variant::kEdit ? EditTemplate::kEdit : EditTemplate::kEditPlus;
}

std::vector<EditInputSizes> EditModel::Plan(std::span<const ImageSize> inputs, bool repairs) const {
  CheckCanEdit(inputs.size());
  EditAreas used = areas;
  if (TemplateFor(repairs) == EditTemplate::kEdit) used.condition_area.reset();
  std::vector<EditInputSizes> sizes;
  for (const ImageSize& input : inputs) sizes.push_back(SizesOf(input, used));
  return sizes;
}

void EditModel::CheckCanEdit(size_t images) const {
  if (!variant.edits()) {
    if (variant.variant == Variant::kUnknown)
      Fail(ErrorKind::kUsage,
           "this model does not say which kind it is ({}); if it is made for editing, say which "
           "variant it is: edit, edit-2509 or edit-2511",
           variant.how);
    Fail(
        ErrorKind::kUsage,
        "this model draws from text ({}) and was not made for editing; a model of Qwen-Image-Edit is needed, "
        "or an initial image to begin with",
        variant.how);
  }
  constexpr size_t kMostImages = 8;
  if (variant.edit == Variant::kEdit && images > 1)
    Fail(ErrorKind::kUsage, "Qwen-Image-Edit takes one input image, not {}; Edit-2509 and later take several",
         images);
  if (images > kMostImages)
    Fail(ErrorKind::kUsage, "{} input images are too many; at most {} are taken", images, kMostImages);
}

}  // namespace qwen_image
