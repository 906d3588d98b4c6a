#include "image/canvas.h"

#include <algorithm>

namespace qwen_image::image {
namespace {

constexpr uint8_t kWhite = 255;

template <typename Pixels>
Pixels Extend(const Pixels& image, const Margins& margins, int64_t channels, bool white) {
  Pixels extended;
  extended.width = image.width + margins.left + margins.right;
  extended.height = image.height + margins.top + margins.bottom;
  extended.pixels.resize(static_cast<size_t>(extended.width * extended.height * channels), kWhite);
  for (int64_t y = 0; y < extended.height; ++y) {
    const int64_t from_y = std::clamp<int64_t>(y - margins.top, 0, image.height - 1);
    for (int64_t x = 0; x < extended.width; ++x) {
      const int64_t from_x = std::clamp<int64_t>(x - margins.left, 0, image.width - 1);
      if (white && (from_x != x - margins.left || from_y != y - margins.top)) continue;
      std::copy_n(image.pixels.data() + (from_y * image.width + from_x) * channels, channels,
                  extended.pixels.data() + (y * extended.width + x) * channels);
    }
  }
  return extended;
}

}  // namespace

Image ExtendCanvas(const Image& image, const Margins& margins) {
  Image extended = Extend(image, margins, image.channels, /*white=*/false);
  extended.channels = image.channels;
  return extended;
}

GreyImage ExtendMask(const GreyImage& mask, const Margins& margins) {
  return Extend(mask, margins, 1, /*white=*/true);
}

}  // namespace qwen_image::image
