#include "files/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "core/fail.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string MessageForBytes(std::string_view bytes) {
  const TempFolder folder;
  const auto path = folder.Write("w.safetensors", bytes);
  const std::string message = MessageOf(ErrorKind::kBadInput, [&] { SafetensorsFile file(path); });
  EXPECT_THAT(message, HasSubstr("w.safetensors"));
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_LT(message.size(), 1000u);
  return message;
}

std::string MessageFor(std::string_view header, size_t data_size) {
  return MessageForBytes(SafetensorsBytes(header, std::string(data_size, 'd')));
}

// A header with the tensor "t".
std::string Entry(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return fmt::format(R"({{"t":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})", dtype, shape, offsets);
}

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const TempFolder folder;
  const std::string header = R"({"__metadata__":{"format":"pt"},
      "b":{"dtype":"F32","shape":[2,1],"data_offsets":[1,9]},
      "a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}   )";
  SafetensorsFile file(folder.Write("w.safetensors", SafetensorsBytes(header, "xABCDEFGH")));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors().at("a").dtype, DType::kU8);
  EXPECT_TRUE(file.tensors().at("a").shape.empty());
  const StoredTensor& b = file.tensors().at("b");
  EXPECT_THAT(b.shape, ElementsAre(2, 1));
  EXPECT_EQ(std::memcmp(b.bytes.data(), "ABCDEFGH", 8), 0);
  EXPECT_EQ(b.bytes.size(), 8u);
}

TEST(Safetensors, TensorsOfSizeZeroAreLegal) {
  const TempFolder folder;
  const std::string header = R"({"z":{"dtype":"F32","shape":[0,5],"data_offsets":[4,4]},
      "a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
      "b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})";
  SafetensorsFile file(folder.Write("w", SafetensorsBytes(header, "12345678")));
  EXPECT_TRUE(file.tensors().at("z").bytes.empty());
  EXPECT_TRUE(SafetensorsFile(folder.Write("w", SafetensorsBytes("{}", ""))).tensors().empty());
}

TEST(Safetensors, ReadsEveryKnownDtype) {
  const TempFolder folder;
  const std::pair<const char*, int> dtypes[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
      {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"F64", 8},     {"I64", 8}, {"U64", 8}};
  for (const auto& [dtype, size] : dtypes) {
    const std::string header = Entry(dtype, "[3]", fmt::format("[0,{}]", 3 * size));
    const SafetensorsFile file(
        folder.Write("w", SafetensorsBytes(header, std::string(size_t(3 * size), 'd'))));
    EXPECT_EQ(NameOf(file.tensors().at("t").dtype), dtype);
  }
}

TEST(Safetensors, ReadsFilesOfTheOfficialLibrary) {
  const std::filesystem::path tiny = std::filesystem::path(QWEN_IMAGE_SOURCE_DIR) / "models/tiny";
  const SafetensorsFile file(tiny / "transformer/diffusion_pytorch_model.safetensors");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.tensors().at("img_in.weight").shape.size(), 2u);
  EXPECT_EQ(file.tensors().at("img_in.weight").shape[1], 64);
}

TEST(SafetensorsHeader, LengthZero) {
  EXPECT_THAT(MessageForBytes(std::string(16, '\0')), HasSubstr("0 bytes is announced"));
}

TEST(SafetensorsHeader, LengthOfAllOnes) {
  EXPECT_THAT(MessageForBytes(LittleEndian(UINT64_MAX, 8) + "{}"), HasSubstr("18446744073709551615 bytes"));
}

TEST(SafetensorsHeader, LengthBeyondTheFile) {
  EXPECT_THAT(MessageForBytes(LittleEndian(3, 8) + "{}"),
              AllOf(HasSubstr("3 bytes"), HasSubstr("1 to 2"), HasSubstr("incomplete")));
}

TEST(SafetensorsHeader, LengthOverTheLimit) {
  const TempFolder folder;
  const auto path = folder.Write("w.safetensors", LittleEndian(100'000'001, 8) + "{}");
  std::filesystem::resize_file(path, 100'000'100);  // sparse
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { SafetensorsFile file(path); }),
              AllOf(HasSubstr("100000001 bytes"), HasSubstr("1 to 100000000")));
}

TEST(SafetensorsHeader, FileTooShort) {
  EXPECT_THAT(MessageForBytes(""), HasSubstr("has 0 bytes"));
  EXPECT_THAT(MessageForBytes("1234567"), HasSubstr("has 7 bytes"));
}

TEST(SafetensorsHeader, OtherKindsOfFilesAreNamed) {
  EXPECT_THAT(MessageForBytes("version https://git-lfs.github.com/spec/v1"), HasSubstr("Git LFS pointer"));
  EXPECT_THAT(MessageForBytes("<!DOCTYPE html><html>"), HasSubstr("web page"));
  EXPECT_THAT(MessageForBytes("PK\x03\x04zipped archive"), HasSubstr("zip archive"));
  EXPECT_THAT(MessageForBytes("GGUF\x03...............\x01"), HasSubstr("GGUF"));
}

TEST(SafetensorsHeader, NotAnObject) { EXPECT_THAT(MessageFor("[]", 0), HasSubstr("the header is array")); }
TEST(SafetensorsHeader, BrokenJson) { EXPECT_THAT(MessageFor("{\"t\": ", 0), HasSubstr("not valid JSON")); }
TEST(SafetensorsHeader, NotUtf8) { EXPECT_THAT(MessageFor("{\"t\xff\": {}}", 0), HasSubstr("UTF-8")); }
TEST(SafetensorsHeader, DeepNesting) {
  EXPECT_THAT(MessageFor("{\"t\":" + std::string(100'000, '['), 0), HasSubstr("deeper than"));
}

TEST(SafetensorsHeader, DuplicateKeys) {
  const std::string t = R"("t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_THAT(MessageFor("{" + t + "," + t + "}", 1), HasSubstr("\"t\" occurs twice"));
}

TEST(SafetensorsHeader, MetadataOtherThanStrings) {
  EXPECT_THAT(MessageFor(R"({"__metadata__":{"a":1}})", 0), HasSubstr("number for \"a\""));
  EXPECT_THAT(MessageFor(R"({"__metadata__":[]})", 0), HasSubstr("__metadata__ is array"));
  const TempFolder folder;  // MLX writes null where it has none
  const SafetensorsFile file(folder.Write("x", SafetensorsBytes(R"({"__metadata__":null})", "")));
  EXPECT_TRUE(file.metadata().empty());
}

TEST(SafetensorsTensor, EntryIncompleteOrOfAWrongType) {
  EXPECT_THAT(MessageFor(R"({"t":3})", 0), HasSubstr("\"t\": number found"));
  EXPECT_THAT(MessageFor(R"({"t":{"shape":[1],"data_offsets":[0,1]}})", 1), HasSubstr("dtype is missing"));
  EXPECT_THAT(MessageFor(R"({"t":{"dtype":"U8","data_offsets":[0,1]}})", 1), HasSubstr("shape is missing"));
  EXPECT_THAT(MessageFor(R"({"t":{"dtype":"U8","shape":[1]}})", 1), HasSubstr("data_offsets is missing"));
  EXPECT_THAT(MessageFor(R"({"t":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})", 1),
              HasSubstr("dtype is number"));
}

TEST(SafetensorsTensor, UnknownDtype) {
  EXPECT_THAT(MessageFor(Entry("F13", "[1]", "[0,1]"), 1),
              AllOf(HasSubstr("\"t\""), HasSubstr("unknown dtype \"F13\"")));
}

TEST(SafetensorsTensor, OffsetsReversed) {
  EXPECT_THAT(MessageFor(Entry("U8", "[4]", "[4,0]"), 4), HasSubstr("[4, 0] are reversed"));
}

TEST(SafetensorsTensor, OffsetsOutOfTheFile) {
  EXPECT_THAT(MessageFor(Entry("F32", "[2]", "[0,8]"), 7),
              AllOf(HasSubstr("\"t\" ends at byte 8"), HasSubstr("holds 7"), HasSubstr("incomplete")));
  EXPECT_THAT(MessageFor(Entry("U8", "[0]", "[18446744073709551615,18446744073709551615]"), 0),
              HasSubstr("ends at byte 18446744073709551615"));
}

TEST(SafetensorsTensor, OffsetsThatAreNoOffsets) {
  for (const char* offsets : {"[-4,0]", "[0.5,4.5]", "[0,1e3]", "[0]", "[0,4,8]", "\"0-4\"", "[null,4]",
                              "[0,36893488147419103232]", "{}", "[\"0\",\"4\"]"}) {
    EXPECT_THAT(MessageFor(Entry("F32", "[1]", offsets), 4), HasSubstr("two whole numbers")) << offsets;
  }
}

TEST(SafetensorsTensor, Overlap) {
  const std::string header = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
                                 "b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})";
  EXPECT_THAT(MessageFor(header, 6), HasSubstr("\"b\" starts at byte 2 of the data and overlaps \"a\""));
}

TEST(SafetensorsTensor, AnEmptyTensorInsideAnother) {
  const std::string header = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
                                 "z":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})";
  EXPECT_THAT(MessageFor(header, 4), HasSubstr("overlaps"));  // as the official library
}

TEST(SafetensorsTensor, BytesThatBelongToNoTensor) {
  EXPECT_THAT(MessageFor(Entry("U8", "[4]", "[2,6]"), 6), HasSubstr("bytes 0 to 2"));
  EXPECT_THAT(MessageFor(Entry("U8", "[4]", "[0,4]"), 6),
              HasSubstr("end at byte 4 of the data, but there are 6"));
  EXPECT_THAT(MessageFor("{}", 1), HasSubstr("end at byte 0"));
}

TEST(SafetensorsTensor, ShapeThatWraps) {
  for (const char* shape : {"[4294967296,4294967296]", "[9223372036854775807,3]", "[4611686018427387904,1]",
                            "[0,4611686018427387904,4]", "[4611686018427387904,4,0]"}) {
    EXPECT_THAT(MessageFor(Entry("F32", shape, "[0,0]"), 0), HasSubstr("larger than any memory")) << shape;
  }
}

TEST(SafetensorsTensor, DimensionsThatAreNone) {
  for (const char* shape : {"[-1]", "[1.0]", "[\"1\"]", "[null]", "[[1]]", "[9223372036854775808]"}) {
    EXPECT_THAT(MessageFor(Entry("U8", shape, "[0,1]"), 1), HasSubstr("is not a dimension")) << shape;
  }
  EXPECT_THAT(MessageFor(Entry("U8", "1", "[0,1]"), 1), HasSubstr("shape is number"));
}

TEST(SafetensorsTensor, TooManyDimensions) {
  std::string shape = "[1";
  for (int i = 0; i < 100'000; ++i) shape += ",1";
  EXPECT_THAT(MessageFor(Entry("U8", shape + "]", "[0,1]"), 1), HasSubstr("100001 dimensions"));
}

TEST(SafetensorsTensor, SpanThatDoesNotFitTheShape) {
  EXPECT_THAT(MessageFor(Entry("BF16", "[2,3]", "[0,10]"), 10),
              AllOf(HasSubstr("span 10 bytes"), HasSubstr("[2, 3] of BF16 needs 12")));
  EXPECT_THAT(MessageFor(Entry("F32", "[0,3]", "[0,4]"), 4), HasSubstr("needs 0"));
}

TEST(SafetensorsTensor, HostileNamesDoNotBreakTheMessage) {
  const std::string name(100'000, 'n');
  MessageFor("{\"" + name + "\\n\\u001b[31m\":3}", 0);
}

}  // namespace
}  // namespace qwen_image
