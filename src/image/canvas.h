// Images with margins around them.
#pragma once

#include "qwen_image/qwen_image.h"

namespace qwen_image::image {

// The margins continue the pixels at the edge.
Image ExtendCanvas(const Image& image, const Margins& margins);
// The same for a mask, whose margins are white.
GreyImage ExtendMask(const GreyImage& mask, const Margins& margins);

}  // namespace qwen_image::image
