// Pictures in memory: 8 bits per channel.
#pragma once

#include <cstdint>
#include <vector>

namespace qwen_image {

struct RgbImage {
  int64_t width = 0;
  int64_t height = 0;
  std::vector<uint8_t> pixels;  // [height, width, 3]
};

struct GreyImage {
  int64_t width = 0;
  int64_t height = 0;
  std::vector<uint8_t> pixels;  // [height, width]
};

}  // namespace qwen_image
