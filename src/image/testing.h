// Images for tests.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "qwen_image/image.h"

namespace qwen_image::image {

inline Image Noise(int64_t width, int64_t height, unsigned seed) {
  std::mt19937 random(seed);
  Image image{width, height, std::vector<uint8_t>(static_cast<size_t>(3 * width * height))};
  for (uint8_t& value : image.pixels) value = static_cast<uint8_t>(random() % 256);
  return image;
}

inline GreyImage Filled(int64_t width, int64_t height, uint8_t value) {
  return {width, height, std::vector<uint8_t>(static_cast<size_t>(width * height), value)};
}

}  // namespace qwen_image::image
