#include "files/exif.h"

#include <gtest/gtest.h>

#include <string>

namespace qwen_image {
namespace {

using namespace std::string_literals;  // for bytes with NULs in them

TEST(Exif, ACommentIsFoundAgain) {
  for (const std::string& comment : {"{\"a\": \"中\"}"s, ""s, std::string(200'000, 'x')}) {
    for (const char* software : {"", "abc", "abcd", "a program"}) {
      EXPECT_EQ(ExifComment(ExifWith(comment, software)), comment) << software;
      EXPECT_EQ(ExifComment("Exif\0\0"s + ExifWith(comment, software)), comment);
    }
  }
}

TEST(Exif, CommentsInACharacterSetAreNotOurs) {
  std::string exif = ExifWith("comment", "program");
  EXPECT_EQ(ExifComment(exif.replace(exif.find("comment") - 8, 8, "UNICODE\0"s)), "");
}

TEST(Exif, DamagedAnywhereItIsReadWithinItsBytes) {
  const std::string whole = ExifWith("comment", "program");
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    EXPECT_EQ(ExifComment(cut), "") << size;
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const char byte : {'\0', '\xff', '\x80'}) {
      std::string damaged = whole;
      damaged[at] = byte;
      EXPECT_LE(ExifComment(damaged).size(), whole.size());
    }
  }
}

TEST(Exif, ADirectoryOfThousandsOfFieldsEnds) {
  std::string exif = "II*\0\x08\0\0\0\xff\xff"s;
  for (int i = 0; i < 65535; ++i)
    exif += "\x69\x87\x04\0\x01\0\0\0\x08\0\0\0"s;  // each points at this directory
  EXPECT_EQ(ExifComment(exif), "");
}

}  // namespace
}  // namespace qwen_image
