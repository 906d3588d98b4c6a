// Pictures in memory: 8 bits per channel.
#pragma once

#include <cstdint>
#include <vector>

namespace qwen_image {

struct Image {
  int64_t width = 0;
  int64_t height = 0;
  std::vector<uint8_t> pixels;  // [height, width, channels]
  int64_t channels = 3;         // 3: RGB; 4: RGBA, whose colours are not multiplied by alpha

  bool has_alpha() const { return channels == 4; }
};
using RgbImage = Image;  // its name in version 0.1

struct GreyImage {
  int64_t width = 0;
  int64_t height = 0;
  std::vector<uint8_t> pixels;  // [height, width]
};

}  // namespace qwen_image
