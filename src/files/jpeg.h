// JPEG pictures: baseline and progressive, grey, colour and CMYK, pixel for pixel as Pillow reads them.
#pragma once

#include <string>
#include <string_view>

#include "files/decoded_image.h"
#include "files/picture_metadata.h"

namespace qwen_image {

// The file's bytes, baseline. quality: 0 to 100; from 90 on the colours keep their resolution. Transparent
// parts are laid on white. Throws Error kUsage for a picture that a JPEG file cannot hold.
std::string EncodeJpeg(const Image& image, int quality, const PictureMetadata& metadata);

// Throws Error kBadInput, also if the file ends too early. `where` names the file in messages. A file that is
// whole but has damaged data is decoded as far as possible, and a note says so.
DecodedImage DecodeJpeg(std::string_view bytes, const std::string& where, const ImageLimits& limits);

}  // namespace qwen_image
