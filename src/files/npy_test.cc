#include "files/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "core/fail.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

using namespace std::string_literals;  // for bytes with NULs in them

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string NpyBytes(std::string_view header, std::string_view data, int version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(version);
  bytes += '\0';
  return bytes + LittleEndian(header.size(), version == 1 ? 2 : 4) + std::string(header) + std::string(data);
}

std::string Header(std::string_view descr, std::string_view shape, std::string_view fortran = "False") {
  return fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}  \n", descr, fortran, shape);
}

NpyArray Parse(std::string_view bytes) { return ParseNpy(std::as_bytes(std::span(bytes)), "x.npy"); }

template <typename T>
std::string Raw(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

std::string NpyMessage(std::string_view bytes) {
  const std::string message = MessageOf(ErrorKind::kBadInput, [&] { Parse(bytes); });
  EXPECT_THAT(message, HasSubstr("x.npy"));
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_LT(message.size(), 1000u);
  return message;
}

TEST(Npy, FloatsOfEverySizeBecomeFloat) {
  const auto floats = [](const NpyArray& array) { return std::get<std::vector<float>>(array.values); };
  const NpyArray array = Parse(NpyBytes(Header("<f4", "(1, 2)"), Raw<float>({1.5f, -2.0f})));
  EXPECT_THAT(array.shape, ElementsAre(1, 2));
  EXPECT_EQ(array.dtype, "<f4");
  EXPECT_THAT(floats(array), ElementsAre(1.5f, -2.0f));
  EXPECT_THAT(floats(Parse(NpyBytes(Header("<f8", "(2,)"), Raw<double>({0.1, 1e300})))),
              ElementsAre(0.1f, std::numeric_limits<float>::infinity()));
  EXPECT_THAT(floats(Parse(NpyBytes(Header("<f2", "(2,)"), Raw<uint16_t>({0x3c00, 0xc000})))),
              ElementsAre(1, -2));
}

TEST(Npy, IntegersBecomeInt64) {
  const auto integers = [](const NpyArray& array) { return std::get<std::vector<int64_t>>(array.values); };
  EXPECT_THAT(integers(Parse(NpyBytes(Header("<i8", "(2,)"), Raw<int64_t>({INT64_MIN, 7})))),
              ElementsAre(INT64_MIN, 7));
  EXPECT_THAT(integers(Parse(NpyBytes(Header("<i4", "(2,)"), Raw<int32_t>({-1, 7})))), ElementsAre(-1, 7));
  EXPECT_THAT(integers(Parse(NpyBytes(Header("|u1", "(2,)"), "\x01\xff"))), ElementsAre(1, 255));
  EXPECT_THAT(integers(Parse(NpyBytes(Header("|i1", "(2,)"), "\x01\xff"))), ElementsAre(1, -1));
  EXPECT_THAT(integers(Parse(NpyBytes(Header("<u2", "(2,)"), Raw<uint16_t>({65535, 7})))),
              ElementsAre(65535, 7));
  EXPECT_THAT(integers(Parse(NpyBytes(Header("<u4", "(1,)"), Raw<uint32_t>({4294967295u})))),
              ElementsAre(4294967295));
  EXPECT_THAT(integers(Parse(NpyBytes(Header("|b1", "(2,)"), Raw<uint8_t>({0, 255})))), ElementsAre(0, 1));
}

TEST(Npy, ReadsAllVersionsScalarsAndEmptyArrays) {
  for (const int version : {1, 2, 3}) {
    EXPECT_THAT(Parse(NpyBytes(Header("<f4", "(1,)"), "\0\0\0\0"s, version)).shape, ElementsAre(1))
        << version;
  }
  EXPECT_TRUE(Parse(NpyBytes(Header("<f4", "()"), std::string(4, '\0'))).shape.empty());
  EXPECT_THAT(Parse(NpyBytes(Header("<f4", "(0, 3)"), "")).shape, ElementsAre(0, 3));
  // The keys in another order, other quotes, no comma at the end.
  const std::string other = R"({"shape":(1,),"fortran_order":False,"descr":"|u1"})";
  EXPECT_THAT(Parse(NpyBytes(other, "\x05")).shape, ElementsAre(1));
}

TEST(Npy, FortranOrderIsFineWhereItMakesNoDifference) {
  EXPECT_NO_THROW(Parse(NpyBytes(Header("|u1", "(3,)", "True"), "123")));
  EXPECT_NO_THROW(Parse(NpyBytes(Header("|u1", "(1, 3, 1)", "True"), "123")));
  EXPECT_NO_THROW(Parse(NpyBytes(Header("|u1", "(0, 3, 2)", "True"), "")));
}

TEST(Npy, FortranOrderIsBroughtToC) {
  const auto values = [](const std::string& shape, const std::string& bytes) {
    return std::get<std::vector<int64_t>>(Parse(NpyBytes(Header("|u1", shape, "True"), bytes)).values);
  };
  EXPECT_THAT(values("(2, 3)", "\x01\x04\x02\x05\x03\x06"), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(values("(2, 1, 2, 2)", "\x01\x05\x03\x07\x02\x06\x04\x08"),
              ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(Npy, BigEndianIsTurnedRound) {
  const NpyArray floats = Parse(NpyBytes(Header(">f4", "(2,)"), "\x3f\x80\0\0\xc0\0\0\0"s));
  EXPECT_THAT(std::get<std::vector<float>>(floats.values), ElementsAre(1, -2));
  EXPECT_EQ(floats.dtype, "<f4");
  const NpyArray both = Parse(NpyBytes(Header(">i2", "(2, 2)", "True"), "\0\x01\x01\0\0\x02\xff\xff"s));
  EXPECT_THAT(std::get<std::vector<int64_t>>(both.values), ElementsAre(1, 2, 256, -1));
}

TEST(Npy, WritesWhatItReads) {
  const TempFolder folder;
  const auto path = folder.path() / "x.npy";
  const float floats[] = {1, 2, 3, 4, 5, 6};
  WriteNpy(path, floats, {2, 3});
  EXPECT_EQ(ReadBytes(path).size(), 128u + 24u);  // as numpy.save pads it
  EXPECT_EQ(ReadBytes(path).substr(10, 56), "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)");
  const Tensor tensor = ReadNpyFloat(path);
  EXPECT_THAT(tensor.shape(), ElementsAre(2, 3));
  EXPECT_EQ(std::memcmp(tensor.data(), floats, sizeof(floats)), 0);
  const int64_t integers[] = {-7, 8};
  WriteNpy(path, integers, {2});
  EXPECT_THAT(ReadBytes(path), HasSubstr("'shape': (2,), }"));
  EXPECT_THAT(std::get<std::vector<int64_t>>(ReadNpy(path).values), ElementsAre(-7, 8));
  const uint8_t bytes[] = {255};
  WriteNpy(path, bytes, {});
  EXPECT_THAT(ReadBytes(path), HasSubstr("'shape': (), }"));
  EXPECT_THAT(std::get<std::vector<int64_t>>(ReadNpy(path).values), ElementsAre(255));
  WriteNpy(path, static_cast<const float*>(nullptr), {0, 4});
  EXPECT_THAT(ReadNpyFloat(path).shape(), ElementsAre(0, 4));
  EXPECT_EQ(folder.FileCount(), 1u);
}

TEST(Npy, ReadNpyFloatWantsFloats) {
  const TempFolder folder;
  const auto path = folder.Write("ids.npy", NpyBytes(Header("<i8", "(1,)"), std::string(8, '\0')));
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { ReadNpyFloat(path); }),
              AllOf(HasSubstr("ids.npy"), HasSubstr("<i8"), HasSubstr("floats are expected")));
}

TEST(Npy, CannotWriteIsThatKindOfError) {
  const float value = 1;
  EXPECT_THAT(MessageOf(ErrorKind::kCannotWrite, [&] { WriteNpy("/absent/x.npy", &value, {1}); }),
              HasSubstr("/absent"));
}

TEST(NpyBad, HeaderOf4Gigabytes) {
  const std::string bytes = "\x93NUMPY\x02"s + '\0' + LittleEndian(0xffffffff, 4) + "{}";
  EXPECT_THAT(NpyMessage(bytes), HasSubstr("header of 4294967295 bytes"));
}

TEST(NpyBad, HeaderBeyondTheFileOrCutOff) {
  EXPECT_THAT(NpyMessage("\x93NUMPY\x01"s + '\0' + LittleEndian(100, 2) + "{}"),
              HasSubstr("header of 100 bytes"));
  EXPECT_THAT(NpyMessage("\x93NUMPY\x02"s + '\0' + LittleEndian(1, 2)), HasSubstr("ends inside"));
  EXPECT_THAT(NpyMessage("\x93NUMPY"), HasSubstr("not a .npy file"));
  EXPECT_THAT(NpyMessage("PK\x03\x04 an npz archive"), HasSubstr("not a .npy file"));
  EXPECT_THAT(NpyMessage(""), HasSubstr("not a .npy file"));
}

TEST(NpyBad, EightyBytesThatClaim65536Squared) {
  EXPECT_THAT(NpyMessage(NpyBytes(Header("<f4", "(65536, 65536)"), "")),
              AllOf(HasSubstr("0 bytes of data"), HasSubstr("[65536, 65536] of <f4 needs 17179869184")));
}

TEST(NpyBad, ShapeThatWraps) {
  for (const char* shape :
       {"(4294967296, 4294967296)", "(9223372036854775807, 2)", "(0, 4611686018427387904, 4)"}) {
    EXPECT_THAT(NpyMessage(NpyBytes(Header("<f4", shape), "")), HasSubstr("larger than any memory")) << shape;
  }
  EXPECT_THAT(NpyMessage(NpyBytes(Header("<f4", "(9223372036854775808,)"), "")),
              HasSubstr("larger than any memory"));
}

TEST(NpyBad, PythonObjects) {
  EXPECT_THAT(NpyMessage(NpyBytes(Header("|O", "(1,)"), "12345678")),
              HasSubstr("Python objects are never read"));
}

TEST(NpyBad, Bfloat16IsSaidToBeSavedAsFloat32) {
  EXPECT_THAT(NpyMessage(NpyBytes(Header("|V2", "(1,)"), "12")), HasSubstr("bfloat16"));
}

TEST(NpyBad, TypesNotSupported) {
  for (const char* descr : {"<c8", "<U4", "|S3", "<f16", "<M8[ns]", "", "f4", "=f4"}) {
    EXPECT_THAT(NpyMessage(NpyBytes(Header(descr, "(1,)"), "1234")), HasSubstr("not supported")) << descr;
  }
  EXPECT_THAT(
      NpyMessage(NpyBytes("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "1234")),
      HasSubstr("structured"));
}

TEST(NpyBad, TruncatedAndTrailingData) {
  EXPECT_THAT(NpyMessage(NpyBytes(Header("<f4", "(2,)"), "1234567")),
              AllOf(HasSubstr("7 bytes"), HasSubstr("incomplete")));
  EXPECT_THAT(NpyMessage(NpyBytes(Header("<f4", "(2,)"), "123456789")), HasSubstr("9 bytes"));
}

TEST(NpyBad, UnknownVersion) {
  EXPECT_THAT(NpyMessage(NpyBytes(Header("<f4", "(1,)"), "1234", 4)), HasSubstr("version 4.0"));
  EXPECT_THAT(NpyMessage("\x93NUMPY\x01\x01\x02"s + '\0' + "{}"), HasSubstr("version 1.1"));
}

TEST(NpyBad, HeadersThatAreNotTheDictionary) {
  const char* const kHeaders[] = {
      "",
      "{",
      "{}",
      "[]",
      "{'descr': '<f4'}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}",
      "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
      "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1.0,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': 1}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': [1]}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,",
      "{'descr': '<f4, 'fortran_order': False, 'shape': (1,)}",
      "{'descr': '<f4",
      "{'descr' '<f4', 'fortran_order': False, 'shape': (1,)}",
      "{'d\\x65scr': '<f4', 'fortran_order': False, 'shape': (1,)}",
      "__import__('os').system('true')",
  };
  for (const char* header : kHeaders) {
    EXPECT_THAT(NpyMessage(NpyBytes(header, "1234")), HasSubstr("header")) << header;
  }
  EXPECT_THAT(NpyMessage(NpyBytes("{'descr': '<f4'\0}"s, "1234")), HasSubstr("header"));
}

TEST(NpyBad, TooManyDimensions) {
  std::string shape = "(";
  for (int i = 0; i < 65; ++i) shape += "1,";
  EXPECT_THAT(NpyMessage(NpyBytes(Header("<f4", shape + ")"), "1234")), HasSubstr("more than 64 dimensions"));
}

}  // namespace
}  // namespace qwen_image
