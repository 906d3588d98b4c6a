// Which sizes an edit works at, as the official pipelines choose them, and what that does to the picture.
//
// The pipelines stretch every input to sides that are multiples of 32, so that circles become slightly oval,
// and return a picture of that size. An input whose sides are multiples of 32 already, and whose area is near
// the model's, stays as it is: exactly if max(width, height) · |√(area / (width · height)) - 1| is below 16
// pixels.
#pragma once

#include <cstdint>
#include <optional>

#include "families/model.h"

namespace qwen_image {

// diffusers' calculate_dimensions: sides near `ratio` (width / height) with about `target_area` pixels.
// Throws Error kBadInput if a side would be empty.
ImageSize CalculateDimensions(int64_t target_area, double ratio);

struct EditAreas {
  int64_t vae_area = 1024 * 1024;
  // Of the vision encoder's pictures. Nothing for Qwen-Image-Edit, which shows it the VAE's picture.
  std::optional<int64_t> condition_area = 384 * 384;
};

// The condition's size is the vision encoder's, which resizes it once more (SmartResize). Throws Error kUsage
// for a picture without pixels, kBadInput for one that is too narrow.
EditInputSizes SizesOf(ImageSize input, const EditAreas& areas);

}  // namespace qwen_image
