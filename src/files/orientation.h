// Which way up a picture is: EXIF's and XMP's orientation, read from hostile bytes and applied as Pillow
// does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "files/decoded_image.h"

namespace qwen_image {

struct Orientation {
  // TIFF's 1 to 8: 1 as it is, 2 mirrored, 3 upside down, 4 upside down and mirrored, 5 transposed, 6 to be
  // turned by 90 degrees clockwise, 7 transposed along the other diagonal, 8 to be turned by 90 degrees
  // counterclockwise.
  int value = 1;
  std::string_view source;  // "EXIF" or "XMP"

  bool swaps_sides() const { return value >= 5; }
  std::string Note() const;  // for the user; empty if there is nothing to do
};

// XMP counts only if EXIF has no orientation. What cannot be understood leaves the picture as it is; fields
// that are damaged, at which Pillow gives up, are passed over.
Orientation OrientationOf(const DecodedImage& image);

// pixels: [height, width, channels] → [height, width, channels] as it is meant to be seen (sides swapped from
// 5 on).
std::vector<uint8_t> Turned(std::vector<uint8_t> pixels, int64_t width, int64_t height, int64_t channels,
                            const Orientation& orientation);

}  // namespace qwen_image
