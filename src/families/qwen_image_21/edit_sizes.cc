#include "families/qwen_image_21/edit_sizes.h"

#include "core/fail.h"
#include "families/edit_sizes.h"

namespace qwen_image::qwen_image_21 {

std::vector<EditInputSizes> PlanEdit(std::span<const ImageSize> inputs, int64_t area) {
  if (inputs.empty()) Fail(ErrorKind::kUsage, "an edit needs at least one input image");
  if (inputs.size() > kMostPictures)
    Fail(ErrorKind::kUsage, "{} input images are too many; at most {} are taken", inputs.size(),
         kMostPictures);
  std::vector<EditInputSizes> sizes;
  for (const ImageSize& input : inputs)
    sizes.push_back(SizesOf(input, {.vae_area = area, .condition_area = std::nullopt}));
  return sizes;
}

}  // namespace qwen_image::qwen_image_21
