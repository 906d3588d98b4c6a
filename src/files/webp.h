// WebP pictures: lossy and lossless, with transparency; of an animation the first picture.
#pragma once

#include <string>
#include <string_view>

#include "files/decoded_image.h"

namespace qwen_image {

// Throws Error kBadInput. `where` names the file in messages.
DecodedImage DecodeWebp(std::string_view bytes, const std::string& where, const ImageLimits& limits);

}  // namespace qwen_image
