#include "files/png.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <string>

#include "core/fail.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

using namespace std::string_literals;  // for bytes with NULs in them

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

std::string BigEndian(uint32_t value) {
  std::string bytes = LittleEndian(value, 4);
  return {bytes.rbegin(), bytes.rend()};
}

std::string Chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const auto crc = crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return BigEndian(static_cast<uint32_t>(data.size())) + body + BigEndian(static_cast<uint32_t>(crc));
}

std::string Deflate(const std::string& data) {
  uLongf size = compressBound(data.size());
  std::string packed(size, '\0');
  compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(data.data()),
           data.size());
  packed.resize(size);
  return packed;
}

const std::string kSignature = "\x89PNG\r\n\x1a\n";

std::string Ihdr(uint32_t width, uint32_t height, int bits, int color_type, int interlace = 0) {
  std::string data = BigEndian(width) + BigEndian(height);
  for (const int value : {bits, color_type, 0, 0, interlace}) data += static_cast<char>(value);
  return Chunk("IHDR", data);
}

std::string Idat(const std::string& rows) { return Chunk("IDAT", Deflate(rows)); }
const std::string kEnd = Chunk("IEND", "");

// A red and a green pixel, with chunks before and behind the pixels.
std::string TwoPixels(const std::string& before = "", const std::string& after = "") {
  return kSignature + Ihdr(2, 1, 8, 2) + before + Idat("\0\xff\0\0\0\xff\0"s) + after + kEnd;
}

std::vector<uint8_t> Pixels(const std::string& bytes) {
  const TempFolder folder;
  return ReadPng(folder.Write("a.png", bytes)).pixels;
}

std::map<std::string, std::string> Text(const std::string& bytes) {
  const TempFolder folder;
  return ReadPngText(folder.Write("a.png", bytes));
}

std::string PngMessage(const std::string& bytes) {
  const std::string message = MessageOf(ErrorKind::kBadInput, [&] { Pixels(bytes); });
  EXPECT_THAT(message, HasSubstr("a.png"));
  return message;
}

TEST(Png, WritesWhatItReads) {
  const TempFolder folder;
  Image image{5, 3, {}};
  for (int i = 0; i < 45; ++i) image.pixels.push_back(static_cast<uint8_t>(i * 17));
  const auto path = folder.path() / "out.png";
  WritePng(path, image, {{"prompt", "a red circle"}});
  const Image read = ReadPng(path);
  EXPECT_EQ(read.width, 5);
  EXPECT_EQ(read.height, 3);
  EXPECT_THAT(read.pixels, ElementsAreArray(image.pixels));
  EXPECT_EQ(folder.FileCount(), 1u);
}

TEST(Png, EncodesInMemoryWhatItReads) {
  const TempFolder folder;
  const Image image{2, 1, {1, 2, 3, 250, 251, 252}};
  EXPECT_THAT(ReadPng(folder.Write("a.png", EncodePng(image))).pixels, ElementsAreArray(image.pixels));
  EXPECT_THAT(MessageOf(ErrorKind::kUsage,
                        [] {
                          EncodePng({2, 2, {1, 2, 3}});
                        }),
              HasSubstr("says it has 2x2 pixels and holds 3 bytes"));
  const std::map<std::string, std::string> text = {{"prompt", "a cat"}};
  EXPECT_EQ(ReadPngText(folder.Write("b.png", EncodePng(image, text))), text);
}

TEST(Png, AlphaIsWrittenAndReadAgain) {
  const TempFolder folder;
  const Image image{2, 2, {1, 2, 3, 0, 4, 5, 6, 128, 7, 8, 9, 255, 250, 251, 252, 1}, 4};
  const auto path = folder.path() / "out.png";
  WritePng(path, image, {{"prompt", "a ghost"}});
  const Image read = ReadPng(path, Transparency::kKept);
  EXPECT_EQ(read.channels, 4);
  EXPECT_THAT(read.pixels, ElementsAreArray(image.pixels));
  EXPECT_EQ(ReadPng(path).channels, 3);
  EXPECT_EQ(ReadPngText(path).at("prompt"), "a ghost");
  EXPECT_EQ(ReadPng(folder.Write("b.png", EncodePng(image)), Transparency::kKept).pixels, image.pixels);
}

TEST(Png, TextIsUtf8AndMayBeLong) {
  const TempFolder folder;
  const auto path = folder.path() / "out.png";
  const std::map<std::string, std::string> text = {{"prompt", "ein Käfer, 一只猫, \U0001F600\nsecond line"},
                                                   {"long", std::string(3'000'000, 'x')},
                                                   {"empty", ""}};
  WritePng(path, {1, 1, {1, 2, 3}}, text);
  EXPECT_EQ(ReadPngText(path), text);
  EXPECT_THAT(ReadBytes(path), HasSubstr("iTXtprompt\0\0\0\0\0ein K"s));  // uncompressed
}

TEST(Png, ANulInTheTextDoesNotCutIt) {
  const TempFolder folder;
  WritePng(folder.path() / "out.png", {1, 1, {1, 2, 3}}, {{"prompt", "a\0b\0"s}});
  EXPECT_EQ(ReadPngText(folder.path() / "out.png").at("prompt"), "a\uFFFDb\uFFFD");
}

TEST(Png, WriteRefusesImpossiblePictures) {
  const TempFolder folder;
  const auto path = folder.path() / "out.png";
  for (const Image& image : {Image{1, 1, {}}, Image{0, 0, {}}, Image{-1, -1, {1, 2, 3}},
                             Image{1, 1, {1, 2, 3}, 4}, Image{1, 1, {1, 2, 3, 4}}, Image{1, 1, {1, 2}, 2}}) {
    MessageOf(ErrorKind::kUsage, [&] { WritePng(path, image, {}); });
  }
  for (const std::string& key : {""s, "with space"s, std::string(80, 'k'), "é"s}) {
    MessageOf(ErrorKind::kUsage, [&] { WritePng(path, {1, 1, {1, 2, 3}}, {{key, "x"}}); });
  }
  EXPECT_EQ(folder.FileCount(), 0u);
}

TEST(Png, AFullDiskIsAnErrorAndLeavesNothing) {
  const TempFolder folder;
  std::filesystem::create_symlink("/dev/full", folder.path() / "out.png");
  Image image{300, 300, std::vector<uint8_t>(270'000)};
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i * i * 7919 >> 5);
  EXPECT_THAT(MessageOf(ErrorKind::kCannotWrite, [&] { WritePng(folder.path() / "out.png", image, {}); }),
              HasSubstr("out.png: No space left"));
  EXPECT_EQ(folder.FileCount(), 1u);
  EXPECT_THAT(MessageOf(ErrorKind::kCannotWrite, [&] { WritePng("/absent/out.png", image, {}); }),
              HasSubstr("/absent"));
}

TEST(Png, EveryKindBecomesRgb) {
  EXPECT_THAT(Pixels(TwoPixels()), ElementsAre(255, 0, 0, 0, 255, 0));
  EXPECT_THAT(Pixels(kSignature + Ihdr(2, 1, 8, 0) + Idat("\0\x10\xff"s) + kEnd),
              ElementsAre(16, 16, 16, 255, 255, 255))
      << "gray";
  EXPECT_THAT(Pixels(kSignature + Ihdr(2, 1, 1, 0) + Idat("\0\x40"s) + kEnd),
              ElementsAre(0, 0, 0, 255, 255, 255))
      << "gray, 1 bit";
  EXPECT_THAT(Pixels(kSignature + Ihdr(1, 1, 16, 2) + Idat("\0\x12\xff\x34\0\xff\xff"s) + kEnd),
              ElementsAre(0x12, 0x34, 255))
      << "16 bits";
  const std::string palette = Chunk("PLTE", "\x01\x02\x03\x04\x05\x06"s);
  EXPECT_THAT(Pixels(kSignature + Ihdr(2, 1, 8, 3) + palette + Idat("\0\1\0"s) + kEnd),
              ElementsAre(4, 5, 6, 1, 2, 3))
      << "palette";
  const std::string passes =
      "\0\x01\x02\x03"s + "\0\x04\x05\x06"s;  // of a 2 x 1 picture: the first and the sixth
  EXPECT_THAT(Pixels(kSignature + Ihdr(2, 1, 8, 2, 1) + Idat(passes) + kEnd), ElementsAre(1, 2, 3, 4, 5, 6))
      << "interlaced";
}

TEST(Png, TransparentPixelsAreLaidOnWhite) {
  EXPECT_THAT(
      Pixels(kSignature + Ihdr(3, 1, 8, 6) + Idat("\0\x0a\x14\x1e\xff\x0a\x14\x1e\0\0\0\0\x80"s) + kEnd),
      ElementsAre(10, 20, 30, 255, 255, 255, 127, 127, 127));
  EXPECT_THAT(Pixels(kSignature + Ihdr(1, 1, 8, 4) + Idat("\0\0\0"s) + kEnd), ElementsAre(255, 255, 255))
      << "gray";
  const std::string palette = Chunk("PLTE", "\x01\x02\x03\x04\x05\x06"s) + Chunk("tRNS", "\0"s);
  EXPECT_THAT(Pixels(kSignature + Ihdr(2, 1, 8, 3) + palette + Idat("\0\1\0"s) + kEnd),
              ElementsAre(4, 5, 6, 255, 255, 255))
      << "palette";
}

TEST(Png, TransparencyIsKeptWhereItIsAskedFor) {
  const TempFolder folder;
  const auto kept = [&](const std::string& bytes) {
    const Image image = ReadPng(folder.Write("a.png", bytes), Transparency::kKept);
    EXPECT_EQ(static_cast<int64_t>(image.pixels.size()), image.width * image.height * image.channels);
    return image.pixels;
  };
  EXPECT_THAT(kept(TwoPixels()), ElementsAre(255, 0, 0, 0, 255, 0));
  EXPECT_THAT(kept(kSignature + Ihdr(2, 1, 8, 6) + Idat("\0\x0a\x14\x1e\xff\x01\x02\x03\0"s) + kEnd),
              ElementsAre(10, 20, 30, 255, 1, 2, 3, 0));
  EXPECT_THAT(kept(kSignature + Ihdr(1, 1, 8, 4) + Idat("\0\x07\x80"s) + kEnd), ElementsAre(7, 7, 7, 128))
      << "gray";
  EXPECT_THAT(kept(kSignature + Ihdr(1, 1, 16, 4) + Idat("\0\x07\xff\x80\xff"s) + kEnd),
              ElementsAre(7, 7, 7, 128))
      << "gray, 16 bits";
  const std::string palette = Chunk("PLTE", "\x01\x02\x03\x04\x05\x06"s) + Chunk("tRNS", "\x09"s);
  EXPECT_THAT(kept(kSignature + Ihdr(2, 1, 8, 3) + palette + Idat("\0\1\0"s) + kEnd),
              ElementsAre(4, 5, 6, 255, 1, 2, 3, 9))
      << "palette";
  const std::string clear = Chunk("tRNS", "\0\xff\0\0\0\0"s);
  EXPECT_THAT(kept(TwoPixels(clear)), ElementsAre(255, 0, 0, 0, 0, 255, 0, 255)) << "one colour";
}

TEST(PngBad, NotAPng) {
  EXPECT_THAT(PngMessage(""), HasSubstr("not a PNG"));
  EXPECT_THAT(PngMessage("\xff\xd8\xff\xe0 a jpeg"), HasSubstr("not a PNG"));
  EXPECT_THAT(PngMessage(kSignature), HasSubstr("no header"));
}

TEST(PngBad, SizesBeyondTheLimitAreRefusedByTheHeader) {
  EXPECT_THAT(PngMessage(kSignature + Ihdr(0x80000000, 1, 8, 2) + kEnd),
              HasSubstr("2147483648 x 1 pixels; 1 to 16384 a side"));
  EXPECT_THAT(PngMessage(kSignature + Ihdr(60000, 60000, 8, 2) + kEnd),
              HasSubstr("60000 x 60000 pixels; 1 to 16384 a side"));
  EXPECT_THAT(PngMessage(kSignature + Ihdr(16384, 16384, 8, 2) + kEnd),
              HasSubstr("16384 x 16384 pixels; 1 to 16384 a side"));
  EXPECT_THAT(PngMessage(kSignature + Ihdr(0, 1, 8, 2) + kEnd), HasSubstr("0 x 1 pixels; 1 to 16384 a side"));
}

TEST(PngBad, AFewBytesThatClaimManyPixels) {
  EXPECT_THAT(PngMessage(kSignature + Ihdr(10000, 10000, 8, 2) + Idat("\0"s) + kEnd),
              HasSubstr("too few for the 10000 x 10000"));
}

TEST(PngBad, TruncatedAnywhere) {
  const std::string whole = TwoPixels();
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string message = PngMessage(whole.substr(0, size));
    if (size >= 33) {
      EXPECT_THAT(message, HasSubstr("ends too early")) << size;
    }
  }
}

TEST(PngBad, AChunkThatClaimsAGigabyte) {  // which libpng would allocate
  std::string chunk = Chunk("eXIf", "II*");
  chunk[0] = 0x40;
  EXPECT_THAT(PngMessage(TwoPixels(chunk)), HasSubstr("ends too early"));
}

TEST(PngBad, EveryFlippedByteIsNoticed) {  // the checksums cover all but the lengths, which then lead astray
  const std::string whole = TwoPixels(Chunk("tEXt", "key\0value"s));
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string broken = whole;
    broken[i] = static_cast<char>(broken[i] ^ 0x41);
    PngMessage(broken);
  }
}

TEST(PngBad, Crc) {
  std::string bytes = TwoPixels();
  bytes[bytes.size() - 13] =
      static_cast<char>(bytes[bytes.size() - 13] ^ 1);  // the last byte of IDAT's checksum
  EXPECT_THAT(PngMessage(bytes), HasSubstr("CRC error"));
}

TEST(PngBad, TooLittlePixelData) {
  EXPECT_THAT(PngMessage(kSignature + Ihdr(2, 2, 8, 2) + Idat("\0\xff\0\0\0\xff\0"s) + kEnd),
              HasSubstr("Not enough"));
}

// 20 MB of zeros behind the one row are 20 KB in the file; a megabyte would be a gigabyte.
TEST(PngBad, DataThatGoesOnBehindThePixelsIsNotUnpacked) {
  const std::string row = "\0\xff\0\0\0\xff\0"s;
  // NOLINTNEXTLINE(bugprone-string-constructor): so large
  const std::string bomb = kSignature + Ihdr(2, 1, 8, 2) + Idat(row + std::string(20'000'000, '\0')) +
                           Chunk("tEXt", "a\0b"s) + kEnd;
  ASSERT_LT(bomb.size(), 30'000u);
  EXPECT_THAT(PngMessage(bomb), HasSubstr("behind its 2 x 1 pixels there is more"));
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { Text(bomb); }), HasSubstr("behind its 2 x 1 pixels"));
  // A little too much, as some programs write it, is passed over.
  const std::string more =
      kSignature + Ihdr(2, 1, 8, 2) + Idat(row + std::string(5'000, '\0')) + Chunk("tEXt", "a\0b"s) + kEnd;
  EXPECT_EQ(Pixels(more).size(), 6u);
  EXPECT_EQ(Text(more).at("a"), "b");
}

TEST(PngBad, KindsThatDoNotExist) {
  EXPECT_THAT(PngMessage(kSignature + Ihdr(2, 1, 7, 2) + Idat("\0"s) + kEnd), HasSubstr("broken PNG"));
  EXPECT_THAT(PngMessage(kSignature + Ihdr(2, 1, 8, 5) + Idat("\0"s) + kEnd), HasSubstr("broken PNG"));
  EXPECT_THAT(PngMessage(kSignature + Ihdr(2, 1, 8, 3) + Idat("\0\0\0"s) + kEnd),
              HasSubstr("broken PNG"));                                                    // no palette
  EXPECT_THAT(PngMessage(kSignature + Ihdr(2, 1, 8, 2) + kEnd), HasSubstr("broken PNG"));  // no pixels
}

TEST(PngText, AllKindsBeforeAndBehindThePixels) {
  const std::string before = Chunk("tEXt", "a\0caf\xe9"s) + Chunk("zTXt", "b\0\0"s + Deflate("packed"));
  const std::string after = Chunk("iTXt", "c\0\0\0de\0Titel\0\xc3\xa9"s) +
                            Chunk("iTXt", "d\0\1\0\0\0"s + Deflate("packed \xc3\xa9")) +
                            Chunk("tEXt", "a\0second"s);
  const std::map<std::string, std::string> expected = {
      {"a", "café"}, {"b", "packed"}, {"c", "é"}, {"d", "packed é"}};
  EXPECT_EQ(Text(TwoPixels(before, after)), expected);
  EXPECT_TRUE(Text(TwoPixels()).empty());
}

TEST(PngText, IsFoundBehindInterlacedPixels) {
  const std::string passes =
      "\0\xff\0\0\0\0\xff\0"s;  // of 2 x 1 pixels: the first and the sixth, a pixel each
  const std::string bytes = kSignature + Ihdr(2, 1, 8, 2, 1) + Idat(passes) + Chunk("tEXt", "a\0b"s) + kEnd;
  EXPECT_EQ(Pixels(bytes), (std::vector<uint8_t>{0xff, 0, 0, 0, 0xff, 0}));
  EXPECT_EQ(Text(bytes).at("a"), "b");
}

TEST(PngText, IsAlwaysUtf8) { EXPECT_EQ(Text(TwoPixels(Chunk("iTXt", "a\0\0\0\0\0\xff"s))).at("a"), "ÿ"); }

TEST(PngText, ABombIsNotUnpacked) {
  const std::string bomb = Chunk("zTXt", "a\0\0"s + Deflate(std::string(5'000'000, 'x')));
  ASSERT_LT(bomb.size(), 10'000u);
  EXPECT_FALSE(Text(TwoPixels(bomb)).contains("a"));
}

TEST(PngText, TheNumberOfTextsIsBounded) {
  std::string many;
  for (int i = 0; i < 1000; ++i) many += Chunk("tEXt", "key" + std::to_string(i) + "\0value"s);
  EXPECT_LE(Text(TwoPixels(many)).size(), 64u);
}

TEST(PngText, BrokenFilesAreErrors) {
  const std::string whole = TwoPixels(Chunk("tEXt", "key\0value"s));
  for (const size_t size : {whole.size() - 1, size_t{40}, size_t{10}, size_t{0}}) {
    MessageOf(ErrorKind::kBadInput, [&] { Text(whole.substr(0, size)); });
  }
  std::string broken = whole;
  broken[45] = 'X';
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { Text(broken); }), HasSubstr("CRC error"));
}

}  // namespace
}  // namespace qwen_image
