// A drawn image laid over the one it was made from.
#pragma once

#include <cstdint>

#include "qwen_image/qwen_image.h"

namespace qwen_image::image {

// From this value on a mask's pixel counts as white. diffusers makes masks of two values at one half, too.
inline constexpr uint8_t kRedrawnFrom = 128;

// `drawn` where the mask is white, `original` bit by bit where it is not; all three of one size. Just inside
// its edge the two are mixed, so that no seam shows; of colours, what is visible counts.
Image Blend(const Image& original, const Image& drawn, const GreyImage& mask);

}  // namespace qwen_image::image
