// Damaged and hostile JPEG files; the good ones are goldens in image_test.cc.
#include "files/jpeg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "files/image_testing.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

using namespace std::string_literals;  // for bytes with NULs in them

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::string Golden(const std::string& name) { return ReadBytes(kImageGoldens / name); }

DecodedImage Decode(const std::string& bytes) { return DecodeJpeg(bytes, "a.jpg", {}); }

std::string JpegMessage(const std::string& bytes) {
  const std::string message = MessageOf(ErrorKind::kBadInput, [&] { Decode(bytes); });
  EXPECT_THAT(message, StartsWith("a.jpg "));
  return message;
}

std::string BigEndian16(int value) { return {static_cast<char>(value >> 8), static_cast<char>(value)}; }

// The frame's header: FF C0 (or C2), length, bits, height, width, the number of components.
size_t FrameOf(const std::string& jpeg) {
  const size_t baseline = jpeg.find("\xff\xc0\0"s);
  return baseline != jpeg.npos ? baseline : jpeg.find("\xff\xc2\0"s);
}

std::string WithSize(std::string jpeg, int width, int height) {
  return jpeg.replace(FrameOf(jpeg) + 5, 4, BigEndian16(height) + BigEndian16(width));
}

TEST(JpegBad, TruncatedAnywhere) {  // libjpeg would fill the rest with grey, and Pillow refuses it too
  for (const std::string& name : {"jpeg_420.jpg"s, "jpeg_420_progressive.jpg"s, "jpeg_cmyk.jpg"s}) {
    const std::string whole = Golden(name);
    for (size_t size = 3; size < whole.size(); ++size)
      EXPECT_THAT(JpegMessage(whole.substr(0, size)), HasSubstr("the file ends too early")) << name << size;
  }
}

TEST(JpegBad, CutBehindThePixels) {
  const std::string whole = Golden("jpeg_420.jpg");
  EXPECT_THAT(JpegMessage(whole.substr(0, whole.size() - 2) + "\xff\xfe\x10\0a comment"s),
              HasSubstr("the file ends too early"));
}

TEST(Jpeg, WhatFollowsThePictureDoesNotMatter) {  // phones append films
  const DecodedImage image = Decode(Golden("jpeg_420.jpg") + "\0\xff\xd8 more"s);
  EXPECT_EQ(image.pixels, ExpectedOf("jpeg_420.jpg").pixels);
  EXPECT_THAT(image.notes, IsEmpty());
}

TEST(JpegBad, DamagedDataIsSaid) {
  const std::string whole = Golden("jpeg_420.jpg");
  EXPECT_THAT(
      Decode(whole.substr(0, whole.size() - 60) + "\xff\xd9").notes,
      ElementsAre("damaged, parts of it may be wrong: Corrupt JPEG data: premature end of data segment"));
}

TEST(JpegBad, SizesBeyondTheLimitAreRefusedByTheHeader) {
  EXPECT_THAT(JpegMessage(WithSize(Golden("jpeg_420.jpg"), 60000, 60000)),
              HasSubstr("a JPEG picture of 60000 x 60000 pixels; 1 to 16384 a side and 100000000 in all"));
  EXPECT_THAT(JpegMessage(WithSize(Golden("jpeg_420.jpg"), 65535, 1)),
              HasSubstr("broken JPEG"));  // libjpeg's limit
  EXPECT_THAT(JpegMessage(WithSize(Golden("jpeg_420.jpg"), 0, 1)), HasSubstr("broken JPEG"));
}

TEST(JpegBad, AFewBytesThatClaimManyPixels) {
  for (const std::string& name : {"jpeg_420.jpg"s, "jpeg_420_progressive.jpg"s}) {
    EXPECT_THAT(JpegMessage(WithSize(Golden(name), 10000, 10000)),
                HasSubstr("too few for the 10000 x 10000 pixels it claims"));
  }
}

TEST(JpegBad, ScansWithoutEnd) {  // each would visit the whole picture
  const std::string whole = Golden("jpeg_grey_progressive.jpg");
  const size_t last_scan = whole.rfind("\xff\xda");
  const std::string scan = whole.substr(last_scan, whole.size() - 2 - last_scan);
  std::string many = whole.substr(0, last_scan);
  for (int i = 0; i < 200; ++i) many += scan;
  EXPECT_THAT(JpegMessage(many + "\xff\xd9"), HasSubstr("more than 100 scans"));
}

TEST(JpegBad, KindsThatAreNotRead) {
  std::string jpeg = Golden("jpeg_420.jpg");
  jpeg[FrameOf(jpeg) + 4] = 12;
  EXPECT_THAT(JpegMessage(jpeg), HasSubstr("precision 12"));
  const std::string frame = "\xff\xc0"s + BigEndian16(14) + "\x08"s + BigEndian16(8) + BigEndian16(8) +
                            "\x02\x01\x11\x00\x02\x11\x00"s;
  const std::string scan = "\xff\xda"s + BigEndian16(10) + "\x02\x01\x00\x02\x00\x00\x3f\x00"s;
  EXPECT_THAT(JpegMessage("\xff\xd8" + frame + scan + "\xff\xd9"),
              HasSubstr("with 2 channels; 1, 3 and 4 are read"));
  EXPECT_THAT(JpegMessage("\xff\xd8\xff\xd9"), HasSubstr("broken JPEG"));
}

TEST(JpegBad, EveryFlippedByteIsSurvived) {
  for (const std::string& name : {"jpeg_exif6.jpg"s, "jpeg_grey_progressive.jpg"s, "jpeg_ycck.jpg"s}) {
    const std::string whole = Golden(name);
    for (size_t i = 0; i < whole.size(); ++i) {
      std::string broken = whole;
      broken[i] = static_cast<char>(broken[i] ^ 0x41);
      try {
        Decode(broken);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << error.message();
      }
    }
  }
}

}  // namespace
}  // namespace qwen_image
