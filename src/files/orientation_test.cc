// Hostile EXIF data; what good data does to a picture is in the goldens of image_test.cc.
#include "files/orientation.h"

#include <gtest/gtest.h>

#include "files/testing.h"

namespace qwen_image {
namespace {

using namespace std::string_literals;  // for bytes with NULs in them

int Value(const std::string& exif, const std::string& xmp = "") {
  return OrientationOf({.exif = exif, .xmp = xmp}).value;
}

std::string Field(int tag, int type, uint32_t count, const std::string& value) {
  return LittleEndian(static_cast<uint64_t>(tag), 2) + LittleEndian(static_cast<uint64_t>(type), 2) +
         LittleEndian(count, 4) + value;
}
std::string Short(int value) { return LittleEndian(static_cast<uint64_t>(value), 4); }

// A directory with these fields, of which it claims `count`.
std::string Exif(const std::string& fields, int count = 1, uint32_t offset = 8) {
  return "II*\0"s + LittleEndian(offset, 4) + LittleEndian(static_cast<uint64_t>(count), 2) + fields +
         "\0\0\0\0"s;
}

const std::string kTurned = Field(0x0112, 3, 1, Short(6));

TEST(Orientation, Prefixes) {
  EXPECT_EQ(Value(Exif(kTurned)), 6);
  EXPECT_EQ(Value("Exif\0\0"s + Exif(kTurned)), 6);
  EXPECT_EQ(Value("Exif\0\0Exif\0\0"s + Exif(kTurned)), 6);
  EXPECT_EQ(Value("Exif\0\0Exif\0\0Exif\0\0"s + Exif(kTurned)), 1);
}

TEST(Orientation, DataThatIsCutNeverMatters) {
  const std::string whole = Exif(kTurned);
  constexpr size_t kEndOfField = 8 + 2 + 12;
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_EQ(Value(whole.substr(0, size)), size < kEndOfField ? 1 : 6) << size;
}

TEST(Orientation, OffsetsAndCountsThatLeadAstray) {
  EXPECT_EQ(Value(Exif(kTurned, 65535)), 6);
  EXPECT_EQ(Value(Exif(Field(0x0100, 3, 1, Short(6)), 65535)), 1);
  for (const uint32_t offset : {0u, 7u, 20u, 0x7fffffffu, 0xfffffff0u, 0xffffffffu})
    EXPECT_EQ(Value(Exif(kTurned, 1, offset)), 1) << offset;
  for (const uint32_t count : {0u, 0x40000000u, 0x80000000u, 0xffffffffu})
    EXPECT_EQ(Value(Exif(Field(0x0112, 3, count, Short(6)))), 1) << count;
  constexpr uint32_t kEnd = 8 + 2 + 12 + 4;
  for (const uint32_t count : {4u, 0x40000000u, 0xffffffffu}) {
    EXPECT_EQ(Value(Exif(Field(0x0112, 3, count, LittleEndian(kEnd, 4))) + "\6\0\6\0\6\0"s), 1)
        << "more values than there are: " << count;
  }
  EXPECT_EQ(Value(Exif(Field(0x0112, 3, 3, LittleEndian(kEnd, 4))) + "\6\0\6\0\6\0"s), 6);
  for (const uint32_t at : {20u, 100u, 0xfffffffeu, 0xffffffffu})
    EXPECT_EQ(Value(Exif(Field(0x0112, 3, 4, LittleEndian(at, 4)))), 1) << at;
}

TEST(Orientation, ValuesThatMeanNothing) {
  for (const int value : {0, 1, 9, 255, 0x0600, 65535})
    EXPECT_EQ(Value(Exif(Field(0x0112, 3, 1, Short(value)))), 1) << value;
  for (const int type : {0, 1, 2, 7, 12, 65535})
    EXPECT_EQ(Value(Exif(Field(0x0112, type, 1, Short(6)))), 1) << type;
  EXPECT_EQ(Value(Exif(Field(0x0112, 4, 1, LittleEndian(0x10006, 4)))), 1);
  EXPECT_EQ(Value("II+\0"s + Exif(kTurned).substr(4)), 1) << "BigTIFF";
  EXPECT_EQ(Value("IM*\0"s + Exif(kTurned).substr(4)), 1);
}

TEST(Orientation, TypesOfWholeNumbers) {
  for (const int type : {3, 4, 8, 9}) EXPECT_EQ(Value(Exif(Field(0x0112, type, 1, Short(6)))), 6) << type;
}

TEST(Orientation, TheFirstOfSeveralCounts) {
  EXPECT_EQ(Value(Exif(Field(0x0112, 3, 1, Short(3)) + kTurned, 2)), 3);
  EXPECT_EQ(Value(Exif(Field(0x0112, 3, 0, Short(3)) + kTurned, 2)), 6) << "the first has no value";
}

TEST(Orientation, Xmp) {
  EXPECT_EQ(Value("", "<a tiff:Orientation=\"8\"/>"), 8);
  EXPECT_EQ(Value("", "<tiff:Orientation>3</tiff:Orientation>"), 3);
  EXPECT_EQ(Value("", "tiff:Orientation tiff:Orientation=\"x tiff:Orientation>5"), 5);
  EXPECT_EQ(Value(Exif(Field(0x0112, 3, 1, Short(1))), "tiff:Orientation>5"), 1) << "EXIF counts more";
  for (const char* nothing :
       {"tiff:Orientation", "tiff:Orientation=\"", "tiff:Orientation>", "tiff:Orientation>9"})
    EXPECT_EQ(Value("", nothing), 1) << nothing;
}

}  // namespace
}  // namespace qwen_image
