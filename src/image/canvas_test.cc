#include "image/canvas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace qwen_image::image {
namespace {

using ::testing::ElementsAre;

TEST(ExtendCanvas, ContinuesTheEdges) {
  const Image image{2, 1, {10, 11, 12, 20, 21, 22}};
  const Image wide = ExtendCanvas(image, {.left = 1, .top = 0, .right = 2, .bottom = 1});
  EXPECT_EQ(wide.width, 5);
  EXPECT_EQ(wide.height, 2);
  const std::vector<uint8_t> row = {10, 11, 12, 10, 11, 12, 20, 21, 22, 20, 21, 22, 20, 21, 22};
  std::vector<uint8_t> both = row;
  both.insert(both.end(), row.begin(), row.end());
  EXPECT_EQ(wide.pixels, both);
}

TEST(ExtendCanvas, ContinuesTransparentEdges) {
  const Image image{2, 1, {10, 11, 12, 13, 20, 21, 22, 0}, 4};
  const Image wide = ExtendCanvas(image, {.left = 1, .right = 1});
  EXPECT_EQ(wide.channels, 4);
  EXPECT_THAT(wide.pixels, ElementsAre(10, 11, 12, 13, 10, 11, 12, 13, 20, 21, 22, 0, 20, 21, 22, 0));
}

TEST(ExtendMask, IsWhiteOutside) {
  const GreyImage mask{2, 1, {0, 200}};
  const GreyImage wide = ExtendMask(mask, {.left = 1, .top = 1, .right = 0, .bottom = 0});
  EXPECT_THAT(wide.pixels, ElementsAre(255, 255, 255, 255, 0, 200));
}

}  // namespace
}  // namespace qwen_image::image
