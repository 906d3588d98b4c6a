// Damaged and hostile WebP files; the good ones are goldens in image_test.cc.
#include "files/webp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "files/image_testing.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

using namespace std::string_literals;  // for bytes with NULs in them

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::string Golden(const std::string& name) { return ReadBytes(kImageGoldens / name); }

DecodedImage Decode(const std::string& bytes) { return DecodeWebp(bytes, "a.webp", {}); }

std::string WebpMessage(const std::string& bytes) {
  const std::string message = MessageOf(ErrorKind::kBadInput, [&] { Decode(bytes); });
  EXPECT_THAT(message, StartsWith("a.webp "));
  return message;
}

std::string WithCanvas(std::string webp, int64_t width, int64_t height) {
  EXPECT_EQ(webp.substr(12, 4), "VP8X");
  return webp.replace(
      24, 6,
      LittleEndian(static_cast<uint64_t>(width - 1), 3) + LittleEndian(static_cast<uint64_t>(height - 1), 3));
}

TEST(WebpBad, TruncatedAnywhere) {
  for (const std::string& name : {"webp_lossy.webp"s, "webp_lossless.webp"s, "webp_animated_alpha.webp"s}) {
    const std::string whole = Golden(name);
    for (size_t size = 12; size < whole.size(); ++size)
      EXPECT_THAT(WebpMessage(whole.substr(0, size)), HasSubstr("the file ends too early")) << name << size;
  }
}

TEST(Webp, WhatFollowsThePictureDoesNotMatter) {
  const DecodedImage image = Decode(Golden("webp_lossy.webp") + "more");
  EXPECT_EQ(image.pixels, ExpectedOf("webp_lossy.webp").pixels);
  EXPECT_THAT(image.notes, IsEmpty());
}

TEST(WebpBad, SizesBeyondTheLimitAreRefusedByTheHeader) {
  const std::string animated = Golden("webp_animated.webp");
  EXPECT_THAT(WebpMessage(WithCanvas(animated, 60000, 60000)),
              HasSubstr("a WebP picture of 60000 x 60000 pixels; 1 to 16384 a side and 100000000 in all"));
  EXPECT_THAT(WebpMessage(WithCanvas(animated, 1 << 24, 1)),
              HasSubstr("16777216 x 1 pixels; 1 to 16384 a side"));
  EXPECT_THAT(WebpMessage(WithCanvas(animated, 1 << 24, 1 << 24)), HasSubstr("broken WebP"));
}

TEST(WebpBad, APictureThatDoesNotFitItsCanvas) {
  EXPECT_THAT(WebpMessage(WithCanvas(Golden("webp_animated.webp"), 8, 8)), HasSubstr("broken WebP"));
  EXPECT_THAT(WebpMessage(WithCanvas(Golden("webp_exif6.webp"), 30, 19)), HasSubstr("broken WebP"));
}

TEST(WebpBad, EveryFlippedByteIsSurvived) {
  constexpr ImageLimits kLimits{.max_side = 1024, .max_pixels = 1 << 16};  // some flips enlarge the picture
  for (const std::string& name :
       {"webp_exif6.webp"s, "webp_lossless_alpha.webp"s, "webp_animated_alpha.webp"s}) {
    const std::string whole = Golden(name);
    for (size_t i = 0; i < whole.size(); ++i) {
      std::string broken = whole;
      broken[i] = static_cast<char>(broken[i] ^ 0x41);
      try {
        DecodeWebp(broken, "a.webp", kLimits);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << error.message();
      }
    }
  }
}

}  // namespace
}  // namespace qwen_image
