#include "files/colour.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace qwen_image {
namespace {

using ::testing::ElementsAre;

TEST(Colours, HaveNamesAndDigits) {
  EXPECT_EQ(ParseColour("white"), (Colour{255, 255, 255}));
  EXPECT_EQ(ParseColour("Black"), (Colour{0, 0, 0}));
  EXPECT_EQ(ParseColour("orange"), (Colour{255, 165, 0}));
  EXPECT_EQ(ParseColour("grey"), ParseColour("gray"));
  EXPECT_EQ(ParseColour("#0aF47e"), (Colour{0x0a, 0xf4, 0x7e}));
  EXPECT_THAT(ColourNames(), testing::StartsWith("white, silver, "));
}

TEST(Colours, OtherTextsAreNone) {
  for (const char* text : {"", "#", "whit", "white ", "#12345", "#1234567", "#12345g", "0123456", "#+12345",
                           "rgb(1,2,3)", "#abc"})
    EXPECT_EQ(ParseColour(text), std::nullopt) << text;
}

TEST(Colours, PicturesAreLaidOnThem) {
  const Image picture{4, 1, {10, 20, 30, 255, 10, 20, 30, 0, 0, 255, 100, 128, 200, 3, 7, 1}, 4};
  const Image on_white = Flatten(picture);
  EXPECT_EQ(on_white.channels, 3);
  EXPECT_THAT(on_white.pixels, ElementsAre(10, 20, 30, 255, 255, 255, 127, 255, 177, 255, 254, 254));
  const Image on_colour = Flatten(picture, {100, 0, 7});
  EXPECT_THAT(on_colour.pixels, ElementsAre(10, 20, 30, 100, 0, 7, 50, 128, 54, 100, 0, 7));
  EXPECT_EQ(on_colour.width, 4);
  EXPECT_EQ(on_colour.height, 1);
}

TEST(Colours, PicturesWithoutAlphaStayAsTheyAre) {
  EXPECT_THAT(Flatten({1, 2, {1, 2, 3, 4, 5, 6}}, {9, 9, 9}).pixels, ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Colours, ChannelsAsAModelWantsThem) {
  const Image rgb{1, 2, {1, 2, 3, 4, 5, 6}};
  const Image opaque = WithChannels(rgb, 4);
  EXPECT_EQ(opaque.channels, 4);
  EXPECT_THAT(opaque.pixels, ElementsAre(1, 2, 3, 255, 4, 5, 6, 255));
  EXPECT_EQ(WithChannels(opaque, 4).pixels, opaque.pixels);
  EXPECT_EQ(WithChannels(opaque, 3).pixels, rgb.pixels);
  EXPECT_EQ(WithChannels(rgb, 3).pixels, rgb.pixels);
}

}  // namespace
}  // namespace qwen_image
