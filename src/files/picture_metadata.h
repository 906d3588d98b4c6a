// What a JPEG or WebP file carries beside its pixels.
#pragma once

#include <string>

namespace qwen_image {

struct PictureMetadata {
  std::string exif;  // without "Exif\0\0" before it; empty: none
  std::string xmp;   // empty: none
};

}  // namespace qwen_image
