// Which sizes an edit works at: every picture is brought to one size, for the vision encoder and for the VAE.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "families/model.h"

namespace qwen_image::qwen_image_21 {

inline constexpr size_t kMostPictures = 10;

// `area`: the square of the pipeline's output_resolution. A picture that is drawn without a size of its own
// has that of the last one. Throws Error kUsage if there are none, too many, or one without pixels; kBadInput
// for one that is too narrow.
std::vector<EditInputSizes> PlanEdit(std::span<const ImageSize> inputs, int64_t area);

}  // namespace qwen_image::qwen_image_21
