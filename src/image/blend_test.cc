#include "image/blend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "image/testing.h"

namespace qwen_image::image {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TEST(Blend, LeavesEveryPixelOutsideTheMaskAsItWas) {
  const int64_t width = 40, height = 30;
  const Image original = Noise(width, height, 1), drawn = Noise(width, height, 2);
  GreyImage mask = Filled(width, height, 127);  // just not white
  for (int64_t y = 10; y < 20; ++y) {
    for (int64_t x = 5; x < 25; ++x) mask.pixels[static_cast<size_t>(y * width + x)] = 128;
  }
  const Image blended = Blend(original, drawn, mask);
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const auto at = static_cast<size_t>(3 * (y * width + x));
      const bool inside = y >= 10 && y < 20 && x >= 5 && x < 25;
      const bool deep = y >= 11 && y < 19 && x >= 6 && x < 24;  // out of reach of the edge's mix
      for (size_t c = 0; c < 3; ++c) {
        if (!inside) {
          EXPECT_EQ(blended.pixels[at + c], original.pixels[at + c]) << x << " " << y;
        } else if (deep) {
          EXPECT_EQ(blended.pixels[at + c], drawn.pixels[at + c]) << x << " " << y;
        }
      }
    }
  }
}

// 5 pixels, of which the last two are redrawn: the first of these lies at the edge.
TEST(Blend, MixesWhatIsVisible) {
  const auto line = [](std::vector<uint8_t> pixel) {
    Image image{5, 1, {}, 4};
    for (int i = 0; i < 5; ++i) image.pixels.insert(image.pixels.end(), pixel.begin(), pixel.end());
    return image;
  };
  const GreyImage mask{5, 1, {0, 0, 0, 255, 255}};
  const auto at = [&](const Image& image, size_t x) {
    return std::vector<uint8_t>(image.pixels.begin() + static_cast<std::ptrdiff_t>(4 * x),
                                image.pixels.begin() + static_cast<std::ptrdiff_t>(4 * x + 4));
  };
  const Image opaque = line({200, 0, 10, 255}), clear = line({0, 255, 0, 0}), half = line({0, 60, 10, 128});
  Image blended = Blend(opaque, clear, mask);
  EXPECT_EQ(blended.channels, 4);
  EXPECT_EQ(at(blended, 2), at(opaque, 0));
  EXPECT_THAT(at(blended, 3), ElementsAre(200, 0, 10, 85)) << "the hidden green does not show";
  EXPECT_EQ(at(blended, 4), at(clear, 0));
  blended = Blend(opaque, half, mask);  // two thirds of alpha 128 against one third of 255
  EXPECT_THAT(at(blended, 3), ElementsAre(100, 30, 10, 170));
  blended = Blend(clear, clear, mask);
  EXPECT_EQ(blended.pixels, clear.pixels);
}

}  // namespace
}  // namespace qwen_image::image
