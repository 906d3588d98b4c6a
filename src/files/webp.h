// WebP pictures: lossy and lossless, with transparency; of an animation the first picture.
#pragma once

#include <string>
#include <string_view>

#include "files/decoded_image.h"
#include "files/picture_metadata.h"

namespace qwen_image {

// The file's bytes. quality: 0 to 100, of which 100 keeps every pixel. Throws Error kUsage for a picture that
// a WebP file cannot hold.
std::string EncodeWebp(const Image& image, int quality, const PictureMetadata& metadata);

// Throws Error kBadInput. `where` names the file in messages.
DecodedImage DecodeWebp(std::string_view bytes, const std::string& where, const ImageLimits& limits);

}  // namespace qwen_image
