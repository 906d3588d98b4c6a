#include "files/picture_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "files/decoded_image.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr PictureFormat kFormats[] = {PictureFormat::kPng, PictureFormat::kJpeg, PictureFormat::kWebp};

// Smooth, so that a picture of JPEG's is near to it.
Image Sample(int64_t channels) {
  Image image{40, 24, {}, channels};
  for (int64_t i = 0; i < image.width * image.height; ++i) {
    const auto x = static_cast<uint8_t>(i % image.width * 6), y = static_cast<uint8_t>(i / image.width * 10);
    image.pixels.insert(image.pixels.end(), {x, y, static_cast<uint8_t>(255 - x)});
    if (channels == 4) image.pixels.push_back(static_cast<uint8_t>(y));
  }
  return image;
}

DecodedImage Decoded(const std::string& bytes) { return DecodePixels(bytes, "picture", {}); }

int LargestDifference(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  EXPECT_EQ(a.size(), b.size());
  int largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

TEST(PictureFile, FormatsAreToldByNameAndEnding) {
  for (const PictureFormat format : kFormats) EXPECT_EQ(FormatNamed(NameOf(format)), format);
  EXPECT_EQ(FormatNamed("jpg"), std::nullopt);
  EXPECT_EQ(FormatOfFile("a.JPG"), PictureFormat::kJpeg);
  EXPECT_EQ(FormatOfFile("a.jpeg"), PictureFormat::kJpeg);
  EXPECT_EQ(FormatOfFile("folder.jpg/a.webp"), PictureFormat::kWebp);
  EXPECT_EQ(FormatOfFile("a"), PictureFormat::kPng);
  EXPECT_EQ(FormatOfFile("-"), PictureFormat::kPng);
  EXPECT_EQ(FormatOfFile("a.gif"), std::nullopt);
  EXPECT_EQ(FormatOfFile("a."), std::nullopt);
}

TEST(PictureFile, PixelsComeBack) {
  for (const int64_t channels : {3, 4}) {
    const Image image = Sample(channels);
    EXPECT_EQ(Decoded(EncodePicture(image, {PictureFormat::kPng}, {})).pixels, image.pixels);
    const DecodedImage webp = Decoded(EncodePicture(image, {PictureFormat::kWebp, 100}, {}));
    EXPECT_EQ(webp.channels, channels);
    EXPECT_EQ(webp.pixels, image.pixels);
  }
  const Image image = Sample(3);
  EXPECT_LE(
      LargestDifference(Decoded(EncodePicture(image, {PictureFormat::kJpeg, 100}, {})).pixels, image.pixels),
      4);
  EXPECT_LE(
      LargestDifference(Decoded(EncodePicture(image, {PictureFormat::kWebp, 99}, {})).pixels, image.pixels),
      30);
}

TEST(PictureFile, LessQualityIsASmallerFile) {
  for (const PictureFormat format : {PictureFormat::kJpeg, PictureFormat::kWebp}) {
    size_t last = SIZE_MAX;
    for (const int quality : {99, 90, 50, 0}) {
      const size_t size = EncodePicture(Sample(3), {format, quality}, {}).size();
      EXPECT_LT(size, last) << NameOf(format) << quality;
      last = size;
    }
  }
}

TEST(PictureFile, JpegLaysTransparentPartsOnWhite) {
  Image clear{8, 8, std::vector<uint8_t>(8 * 8 * 4, 0), 4};
  const DecodedImage jpeg = Decoded(EncodePicture(clear, {PictureFormat::kJpeg}, {}));
  EXPECT_EQ(jpeg.pixels, std::vector<uint8_t>(8 * 8 * 3, 255));
}

TEST(PictureFile, TextsComeBack) {
  const PictureText text = {{"qwen-image", R"({"prompt": "中\n\"x\""})"},
                            {"other", std::string(150'000, 'x')}};
  PictureText all = text;
  all[kSoftwareKey] = "a program";
  all[kXmpKey] = "<x:xmpmeta/>";
  for (const PictureFormat format : kFormats) {
    const std::string bytes = EncodePicture(Sample(4), {format, 80}, all);
    EXPECT_EQ(DecodePictureText(bytes, "picture"), format == PictureFormat::kPng ? all : text);
    EXPECT_THAT(bytes, HasSubstr("a program"));
    EXPECT_EQ(Decoded(bytes).xmp, "<x:xmpmeta/>") << NameOf(format);
  }
}

TEST(PictureFile, AnotherProgramsCommentIsNoText) {
  const TempFolder folder;
  EXPECT_THAT(ReadPictureText(QWEN_IMAGE_SOURCE_DIR "/tests/goldens/images/webp_lossy.webp"),
              testing::IsEmpty());
  MessageOf(ErrorKind::kBadInput, [&] { ReadPictureText(folder.Write("a.jpg", "no picture")); });
}

TEST(PictureFile, FilesAreWhatTheirNamesSay) {
  const TempFolder folder;
  for (const char* name : {"a.png", "a.jpg", "a.webp"}) {
    WritePicture(folder.path() / name, Sample(3), {*FormatOfFile(name), 90}, {{"key", "value"}});
    EXPECT_EQ(ReadPictureText(folder.path() / name), (PictureText{{"key", "value"}}));
  }
  EXPECT_THAT(ReadBytes(folder.path() / "a.jpg"), StartsWith("\xff\xd8\xff"));
  EXPECT_THAT(ReadBytes(folder.path() / "a.webp"), StartsWith("RIFF"));
}

TEST(PictureFile, PicturesThatAFormatDoesNotHaveAreRefused) {
  const Image wide{16384, 1, std::vector<uint8_t>(16384 * 3), 3};
  MessageOf(ErrorKind::kUsage, [&] { EncodePicture(wide, {PictureFormat::kWebp}, {}); });
  const Image broken{2, 2, std::vector<uint8_t>(3), 3};
  for (const PictureFormat format : kFormats)
    MessageOf(ErrorKind::kUsage, [&] { EncodePicture(broken, {format}, {}); });
}

}  // namespace
}  // namespace qwen_image
