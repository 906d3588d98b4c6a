// Pictures as users send them. What Pillow reads from them: tools/reference/image_goldens.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>

#include "files/colour.h"
#include "files/image_testing.h"
#include "files/testing.h"
#include "qwen_image/image_file.h"

namespace qwen_image {
namespace {

using namespace std::string_literals;  // for bytes with NULs in them

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const char kOnWhite[] = "transparent parts are laid on white";
const char k16Bits[] = "16 bits per channel, reduced to 8";
const char kAnimation[] = "an animation: its first picture is used";
const char kCmyk[] = "CMYK, converted to RGB";

// Of the goldens that have any.
const std::map<std::string, std::vector<std::string>> kNotes = {
    {"png_rgba.png", {kOnWhite}},
    {"png_grey_alpha.png", {kOnWhite}},
    {"png_palette_clear.png", {kOnWhite}},
    {"png_colour_clear.png", {kOnWhite}},
    {"png_rgb16.png", {k16Bits}},
    {"png_rgba16.png", {k16Bits, kOnWhite}},
    {"png_grey16.png", {k16Bits}},
    {"png_animated.png", {kAnimation}},
    {"png_exif6.png", {"turned by 90 degrees clockwise as its EXIF data says"}},
    {"png_exif8_alpha.png", {kOnWhite, "turned by 90 degrees counterclockwise as its EXIF data says"}},
    {"png_xmp3.png", {"turned by 180 degrees as its XMP data says"}},
    {"png_raw_profile5.png", {"mirrored and turned by 90 degrees counterclockwise as its EXIF data says"}},
    {"jpeg_cmyk.jpg", {kCmyk}},
    {"jpeg_cmyk_plain.jpg", {kCmyk}},
    {"jpeg_ycck.jpg", {kCmyk}},
    {"jpeg_exif2.jpg", {"mirrored as its EXIF data says"}},
    {"jpeg_exif3.jpg", {"turned by 180 degrees as its EXIF data says"}},
    {"jpeg_exif4.jpg", {"mirrored top to bottom as its EXIF data says"}},
    {"jpeg_exif5.jpg", {"mirrored and turned by 90 degrees counterclockwise as its EXIF data says"}},
    {"jpeg_exif6.jpg", {"turned by 90 degrees clockwise as its EXIF data says"}},
    {"jpeg_exif7.jpg", {"mirrored and turned by 90 degrees clockwise as its EXIF data says"}},
    {"jpeg_exif8.jpg", {"turned by 90 degrees counterclockwise as its EXIF data says"}},
    {"jpeg_exif6_long.jpg", {"turned by 90 degrees clockwise as its EXIF data says"}},
    {"jpeg_exif3_twice.jpg", {"turned by 180 degrees as its EXIF data says"}},
    {"jpeg_xmp8.jpg", {"turned by 90 degrees counterclockwise as its XMP data says"}},
    {"webp_lossy_alpha.webp", {kOnWhite}},
    {"webp_lossless_alpha.webp", {kOnWhite}},
    {"webp_exif6.webp", {"turned by 90 degrees clockwise as its EXIF data says"}},
    {"webp_xmp3.webp", {"turned by 180 degrees as its XMP data says"}},
    {"webp_animated.webp", {kAnimation}},
    {"webp_animated_part.webp", {kAnimation}},
    {"webp_animated_alpha.webp", {kAnimation, kOnWhite}},
    {"webp_animated_alpha_part.webp", {kAnimation, kOnWhite}},
};

std::set<std::string> GoldenNames() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kImageGoldens)) {
    const std::string name = entry.path().filename();
    if (entry.path().extension() != ".npz" && !name.starts_with("mask_")) names.insert(name);
  }
  return names;
}

class ImageGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(ImageGolden, IsWhatPillowReads) {
  const ExpectedPixels expected = ExpectedOf(GetParam());
  const ImageFile file = ReadImage(kImageGoldens / GetParam());
  EXPECT_EQ(file.image.height, expected.shape[0]);
  EXPECT_EQ(file.image.width, expected.shape[1]);
  EXPECT_EQ(file.image.pixels, expected.pixels);
  const auto notes = kNotes.find(GetParam());
  EXPECT_EQ(file.notes, notes == kNotes.end() ? std::vector<std::string>() : notes->second);
}

// That hidden colours and alpha are Pillow's is tested where Pillow is: python/tests/test_inputs.py.
TEST_P(ImageGolden, KeepsWhatIsLaidOnWhiteOtherwise) {
  const ImageFile on_white = ReadImage(kImageGoldens / GetParam());
  const ImageFile kept = ReadImage(kImageGoldens / GetParam(), {}, Transparency::kKept);
  const bool noted = std::count(on_white.notes.begin(), on_white.notes.end(), kOnWhite) > 0;
  EXPECT_EQ(kept.transparent, noted);
  EXPECT_EQ(on_white.transparent, noted);
  EXPECT_TRUE(kept.image.has_alpha() || !noted);
  EXPECT_EQ(static_cast<int64_t>(kept.image.pixels.size()),
            kept.image.width * kept.image.height * kept.image.channels);
  EXPECT_EQ(Flatten(kept.image).pixels, on_white.image.pixels);
  std::vector<std::string> others = on_white.notes;
  std::erase(others, kOnWhite);
  EXPECT_EQ(kept.notes, others);
}

INSTANTIATE_TEST_SUITE_P(Files, ImageGolden, ::testing::ValuesIn(GoldenNames()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

TEST(Image, GreyIsThatOfPillow) {
  const GreyImage grey = ToGrey(ReadImage(kImageGoldens / "png_rgb.png").image);
  const ExpectedPixels expected = ExpectedOf("png_rgb.L");
  EXPECT_EQ(grey.height, expected.shape[0]);
  EXPECT_EQ(grey.width, expected.shape[1]);
  EXPECT_EQ(grey.pixels, expected.pixels);
}

TEST(Image, GreyDoesNotLookAtAlpha) {
  EXPECT_EQ(ToGrey({2, 1, {10, 10, 10, 0, 255, 255, 255, 9}, 4}).pixels, (std::vector<uint8_t>{10, 255}));
}

TEST(Image, TheNameDoesNotMatter) {
  const TempFolder folder;
  const std::string png = ReadBytes(kImageGoldens / "png_rgb.png");
  EXPECT_EQ(ReadImage(folder.Write("a.jpg", png)).image.pixels, ExpectedOf("png_rgb.png").pixels);
  EXPECT_EQ(ReadImage(folder.Write("picture", png)).image.pixels, ExpectedOf("png_rgb.png").pixels);
}

TEST(Image, FromMemoryAsFromAFile) {
  const ImageFile file = DecodeImage(ReadBytes(kImageGoldens / "jpeg_exif6.jpg"), "upload 1");
  EXPECT_EQ(file.image.pixels, ExpectedOf("jpeg_exif6.jpg").pixels);
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [] { DecodeImage("", "upload 1"); }),
              StartsWith("upload 1 is empty"));
}

struct MaskCase {
  std::string name;
  std::vector<std::string> notes;
};
class Mask : public ::testing::TestWithParam<MaskCase> {};

TEST_P(Mask, MeansWhatUsersMean) {
  const ExpectedPixels expected = ExpectedOf(GetParam().name);
  const MaskFile file = ReadMask(kImageGoldens / GetParam().name);
  EXPECT_EQ(file.image.height, expected.shape[0]);
  EXPECT_EQ(file.image.width, expected.shape[1]);
  EXPECT_EQ(file.image.pixels, expected.pixels);
  EXPECT_EQ(file.notes, GetParam().notes);
}

const char kStrokes[] = "a mask of one colour on a transparent ground: what it covers is redrawn";
const char kGreys[] = "the mask's transparent parts count as black: they are kept";
const char kHole[] = "the mask's transparent parts are redrawn, all else is kept";
INSTANTIATE_TEST_SUITE_P(
    Files, Mask,
    ::testing::Values(MaskCase{"mask_colour.png", {}}, MaskCase{"mask_grey.png", {}},
                      MaskCase{"mask_white_strokes.png", {kStrokes}},
                      MaskCase{"mask_red_strokes.png", {kStrokes}},
                      MaskCase{"mask_greys_clear.png", {kGreys}}, MaskCase{"mask_hole.png", {kHole}},
                      MaskCase{"mask_black_cover.png", {kHole}},
                      MaskCase{"mask_exif6.png", {"turned by 90 degrees clockwise as its EXIF data says"}}),
    [](const auto& info) { return info.param.name.substr(0, info.param.name.find('.')); });

std::string ImageMessage(const std::string& bytes, const ImageLimits& limits = {}) {
  const TempFolder folder;
  const std::string message =
      MessageOf(ErrorKind::kBadInput, [&] { ReadImage(folder.Write("a.png", bytes), limits); });
  EXPECT_THAT(message, HasSubstr("a.png"));
  EXPECT_EQ(MessageOf(ErrorKind::kBadInput, [&] { ReadMask(folder.path() / "a.png", limits); }), message);
  return message;
}

TEST(ImageBad, Empty) { EXPECT_THAT(ImageMessage(""), HasSubstr("is empty; a picture is expected")); }

TEST(ImageBad, ATextFile) {
  EXPECT_THAT(ImageMessage("Dear all,\nthe picture is attached"),
              AllOf(HasSubstr("not a picture that can be read: it begins with \"Dear all,\\x0athe pi\""),
                    HasSubstr("PNG, JPEG and WebP are read")));
  ImageMessage("B");
  ImageMessage("BMW");
  ImageMessage("RIFF");
}

TEST(ImageBad, OtherFormatsAreNamed) {
  const std::map<std::string, std::string> kFormats = {
      {"GIF89a\1\0\1\0"s, "a GIF picture"},
      {"BM\x46\0\0\0\0\0\0\0\x36\0\0\0"s, "a BMP picture"},
      {"II*\0\x08\0\0\0"s, "a TIFF picture"},
      {"MM\0*\0\0\0\x08"s, "a TIFF picture"},
      {"\0\0\0\x18"
       "ftypheic\0\0\0\0mif1heic"s,
       "a HEIC picture"},
      {"\0\0\0\x1c"
       "ftypmif1\0\0\0\0"s,
       "a HEIC picture"},
      {"\0\0\0\x1c"
       "ftypavif\0\0\0\0avifmif1"s,
       "an AVIF picture"},
      {"\0\0\0\x0cJXL \r\n\x87\n"s, "a JPEG XL picture"},
      {"8BPS\0\1"s, "a Photoshop file"},
      {"<svg xmlns="s, "an SVG drawing"},
  };
  for (const auto& [bytes, format] : kFormats)
    EXPECT_THAT(ImageMessage(bytes), HasSubstr("is " + format + "; PNG, JPEG and WebP are read"));
}

TEST(ImageBad, WhatIsNoFile) {
  const TempFolder folder;
  const auto message = [](const std::filesystem::path& path) {
    return MessageOf(ErrorKind::kBadInput, [&] { ReadImage(path); });
  };
  EXPECT_THAT(message(folder.path() / "absent.png"), HasSubstr("absent.png: No such file"));
  EXPECT_THAT(message(folder.path()), HasSubstr("is a folder"));
  ASSERT_EQ(mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(message(folder.path() / "pipe"), HasSubstr("not a regular file"));
  EXPECT_THAT(message("/dev/zero"), HasSubstr("not a regular file"));
}

// PEERS' list: 2³¹ × 1, 60000², truncated, bad CRC; 16-bit, CMYK and EXIF rotation are goldens above. JPEG
// and WebP have their own in their tests.
std::string WithSize(std::string png, uint32_t width, uint32_t height) {
  for (size_t i = 0; i < 4; ++i) {
    png[16 + i] = static_cast<char>(width >> (24 - 8 * i));
    png[20 + i] = static_cast<char>(height >> (24 - 8 * i));
  }
  return png;
}

TEST(ImageBad, ASideOfTwoToThe31) {
  EXPECT_THAT(ImageMessage(WithSize(ReadBytes(kImageGoldens / "png_rgb.png"), 0x80000000, 1)),
              HasSubstr("a PNG picture of 2147483648 x 1 pixels; 1 to 16384 a side and 100000000 in all"));
}

TEST(ImageBad, SixtyThousandSquared) {
  EXPECT_THAT(ImageMessage(WithSize(ReadBytes(kImageGoldens / "png_rgb.png"), 60000, 60000)),
              HasSubstr("a PNG picture of 60000 x 60000 pixels; 1 to 16384 a side and 100000000 in all"));
}

TEST(ImageBad, Truncated) {
  const std::string whole = ReadBytes(kImageGoldens / "png_rgb.png");
  EXPECT_THAT(ImageMessage(whole.substr(0, whole.size() / 2)), HasSubstr("ends too early"));
}

TEST(ImageBad, Crc) {
  std::string broken = ReadBytes(kImageGoldens / "png_rgb.png");
  char& checksum = broken[broken.size() - 13];  // of the pixels
  checksum = static_cast<char>(checksum ^ 1);
  EXPECT_THAT(ImageMessage(broken), HasSubstr("CRC error"));
}

TEST(ImageBad, BeyondTheCallersLimits) {
  for (const std::string& name : {"png_rgb.png"s, "jpeg_420.jpg"s, "webp_lossy.webp"s}) {
    const std::string bytes = ReadBytes(kImageGoldens / name);
    EXPECT_THAT(ImageMessage(bytes, {.max_side = 28}), HasSubstr("29 x 19 pixels; 1 to 28 a side")) << name;
    EXPECT_THAT(ImageMessage(bytes, {.max_pixels = 550}),
                HasSubstr("29 x 19 pixels; 1 to 16384 a side and 550 in"))
        << name;
    DecodeImage(bytes, name, {.max_side = 29, .max_pixels = 551});
  }
}

}  // namespace
}  // namespace qwen_image
