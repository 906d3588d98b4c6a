// Pixels that come from C are copied into images.
#pragma once

#include "c_api/guard.h"
#include "qwen_image/image.h"
#include "qwen_image/image_file.h"

namespace qwen_image {

// Copies [height, width, channels] bytes; the sizes are those that picture files may have.
template <typename Pixels>
Pixels CopyPixels(int64_t width, int64_t height, int64_t channels, const uint8_t* pixels) {
  const ImageLimits limits;
  const bool sides = width >= 1 && height >= 1 && width <= limits.max_side && height <= limits.max_side;
  if (!sides || width * height > limits.max_pixels)
    Fail(ErrorKind::kUsage, "a picture of {}x{} is not taken: sides from 1 to {} and {} pixels are", width,
         height, limits.max_side, limits.max_pixels);
  const uint8_t* begin = &Need(pixels, "pixels");
  return {width, height, {begin, begin + channels * width * height}};
}

inline Image CopyImage(int64_t width, int64_t height, int channels, const uint8_t* pixels) {
  if (channels != 3 && channels != 4)
    Fail(ErrorKind::kUsage, "a picture of {} channels is not taken: 3 (RGB) and 4 (RGBA) are", channels);
  auto image = CopyPixels<Image>(width, height, channels, pixels);
  image.channels = channels;
  return image;
}

}  // namespace qwen_image
