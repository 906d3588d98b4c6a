#include "files/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "files/gguf_testing.h"

namespace qwen_image {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint32_t kF32 = 0, kQ8_0 = 8, kQ4_K = 12, kF64 = 28;
constexpr uint64_t kHuge = uint64_t{1} << 63;

std::string MessageFor(std::string_view bytes) {
  const TempFolder folder;
  const auto path = folder.Write("w.gguf", bytes);
  const std::string message = MessageOf(ErrorKind::kBadInput, [&] { GgufFile file(path); });
  EXPECT_THAT(message, HasSubstr("w.gguf"));
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_LT(message.size(), 1000u);
  return message;
}

std::string MessageFor(const GgufBytes& file) { return MessageFor(file.Bytes()); }

std::string MessageForTensor(const std::vector<uint64_t>& dimensions, uint32_t type, uint64_t offset = 0) {
  return MessageFor(GgufBytes().Tensor("t", dimensions, type, offset).Data(std::string(64, 'd')));
}

// One of everything: a string, a number, an array of strings and of numbers, two tensors.
GgufBytes Small() {
  return GgufBytes()
      .Value("general.name", GgufType::kString, GgufString("small"))
      .Value("n", GgufType::kU32, LittleEndian(7, 4))
      .Value("words", GgufType::kArray,
             GgufArrayBytes(GgufType::kString, 2, GgufString("a") + GgufString("bc")))
      .Value("comfy.gguf.orig_shape.b", GgufType::kArray,
             GgufArrayBytes(GgufType::kI32, 2, LittleEndian(16, 4) + LittleEndian(2, 4)))
      .Tensor("a", {2, 3}, kF32, 0)
      .Tensor("b", {32}, kQ8_0, 32)
      .Data(std::string(24, 'a') + std::string(8, '\0') + std::string(34, 'b'));
}

TEST(Gguf, ReadsTensorsAndMetadata) {
  const TempFolder folder;
  const GgufFile file(folder.Write("w.gguf", Small().Bytes()));
  EXPECT_EQ(file.metadata().at("general.name"), "small");
  EXPECT_EQ(file.metadata().at("n"), "7");
  EXPECT_THAT(*file.StringArray("words"), ElementsAre("a", "bc"));
  ASSERT_EQ(file.tensors().size(), 2u);
  const StoredTensor &a = file.tensors().at("a"), &b = file.tensors().at("b");
  EXPECT_EQ(a.dtype, DType::kF32);
  EXPECT_THAT(a.shape, ElementsAre(3, 2));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(a.bytes.data()), a.bytes.size()), std::string(24, 'a'));
  EXPECT_EQ(b.dtype, DType::kQ8_0);
  EXPECT_THAT(b.shape, ElementsAre(16, 2));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(b.bytes.data()), b.bytes.size()), std::string(34, 'b'));
}

TEST(Gguf, Version2IsReadAlike) {
  GgufBytes bytes = Small();
  bytes.version = 2;
  const TempFolder folder;
  EXPECT_EQ(GgufFile(folder.Write("w.gguf", bytes.Bytes())).tensors().size(), 2u);
}

TEST(Gguf, NothingInIt) {
  const TempFolder folder;
  const GgufFile file(folder.Write("w.gguf", GgufBytes().Bytes()));
  EXPECT_THAT(file.tensors(), IsEmpty());
  EXPECT_THAT(file.metadata(), IsEmpty());
}

TEST(Gguf, NoDimensionsAreOneValue) {
  const TempFolder folder;
  const GgufFile file(folder.Write("w.gguf", GgufBytes().Tensor("t", {}, kF32, 0).Data("1234").Bytes()));
  EXPECT_THAT(file.tensors().at("t").shape, IsEmpty());
  EXPECT_EQ(file.tensors().at("t").bytes.size(), 4u);
}

TEST(Gguf, StaysValidWhenMoved) {
  const TempFolder folder;
  GgufFile first(folder.Write("w.gguf", Small().Bytes()));
  const GgufFile file(std::move(first));
  EXPECT_EQ(static_cast<char>(file.tensors().at("b").bytes.back()), 'b');
  EXPECT_THAT(*file.StringArray("words"), ElementsAre("a", "bc"));
}

TEST(GgufHeader, OtherFiles) {
  EXPECT_THAT(MessageFor(""), HasSubstr("starts with \"\", and \"GGUF\" is expected"));
  EXPECT_THAT(MessageFor("GGU"), HasSubstr("no GGUF file"));
  EXPECT_THAT(MessageFor("GGML\x03\x00\x00\x00"), HasSubstr("starts with \"GGML\""));
}

TEST(GgufHeader, Versions) {
  GgufBytes bytes;
  bytes.version = 0;
  EXPECT_THAT(MessageFor(bytes), HasSubstr("version 0, and 2 and 3 are read"));
  bytes.version = 1;
  EXPECT_THAT(MessageFor(bytes), AllOf(HasSubstr("version 1"), HasSubstr("converted again")));
  bytes.version = 4;
  EXPECT_THAT(MessageFor(bytes), AllOf(HasSubstr("version 4"), HasSubstr("newer than this program")));
  bytes.version = 0x03000000;
  EXPECT_THAT(MessageFor(bytes), HasSubstr("big-endian"));
}

TEST(GgufHeader, CountsThatNoFileHolds) {
  for (const uint64_t count : {uint64_t{1000}, kHuge, UINT64_MAX}) {
    GgufBytes tensors = Small(), metadata = Small();
    tensors.tensor_count = metadata.metadata_count = count;
    EXPECT_THAT(MessageFor(tensors),
                HasSubstr(fmt::format("{} tensors and 4 metadata entries are announced", count)));
    EXPECT_THAT(MessageFor(metadata), HasSubstr(fmt::format("2 tensors and {} metadata", count)));
  }
}

TEST(GgufMetadata, LengthsBeyondTheFile) {
  for (const uint64_t length : {uint64_t{1000}, kHuge, UINT64_MAX}) {
    GgufBytes key;
    key.metadata = LittleEndian(length, 8) + "key and more";
    key.metadata_count = 1;
    EXPECT_THAT(MessageFor(key), AllOf(HasSubstr("ends within metadata entry 1 of 1"),
                                       HasSubstr(fmt::format("{} bytes are expected", length))));
    const GgufBytes value = GgufBytes().Value("k", GgufType::kString, LittleEndian(length, 8) + "text");
    EXPECT_THAT(MessageFor(value), HasSubstr("ends within metadata \"k\""));
    const std::string element = LittleEndian(length, 8) + "text";
    const GgufBytes array =
        GgufBytes().Value("k", GgufType::kArray, GgufArrayBytes(GgufType::kString, 1, element));
    EXPECT_THAT(MessageFor(array), HasSubstr("ends within metadata \"k\""));
    GgufBytes tensor;
    tensor.tensors = LittleEndian(length, 8) + "name and so on";
    tensor.tensor_count = 1;
    EXPECT_THAT(MessageFor(tensor), HasSubstr("ends within tensor 1 of 1"));
  }
}

TEST(GgufMetadata, ArraysLongerThanTheFile) {
  for (const GgufType type : {GgufType::kU8, GgufType::kF64, GgufType::kString, GgufType::kArray}) {
    for (const uint64_t count : {uint64_t{1000}, kHuge / 4, kHuge, UINT64_MAX}) {
      EXPECT_THAT(
          MessageFor(GgufBytes().Value("k", GgufType::kArray, GgufArrayBytes(type, count, "elements"))),
          HasSubstr(fmt::format("\"k\": an array of {} values of type {}", count, NameOf(type))));
    }
  }
}

TEST(GgufMetadata, UnknownTypes) {
  EXPECT_THAT(MessageFor(GgufBytes().Value("k", 13, "12345678")),
              HasSubstr("\"k\": type 13, and 0 to 12 are known"));
  EXPECT_THAT(MessageFor(GgufBytes().Value("k", UINT32_MAX, "")), HasSubstr("type 4294967295"));
  EXPECT_THAT(MessageFor(GgufBytes().Value("k", GgufType::kArray, GgufArrayBytes(GgufType{99}, 1, "x"))),
              HasSubstr("type 99"));
}

TEST(GgufMetadata, ArraysInArrays) {
  const auto nested = [](int depth) {
    std::string array = GgufArrayBytes(GgufType::kU8, 1, "x");
    for (int i = 1; i < depth; ++i) array = GgufArrayBytes(GgufType::kArray, 1, array);
    return GgufBytes().Value("k", GgufType::kArray, array).Value("last", GgufType::kU8, "\x05");
  };
  const TempFolder folder;
  EXPECT_EQ(GgufFile(folder.Write("w.gguf", nested(4).Bytes())).metadata().at("last"), "5");
  EXPECT_THAT(MessageFor(nested(5)), HasSubstr("\"k\": arrays within arrays deeper than 4"));
  std::string bomb;
  for (int i = 0; i < 100'000; ++i) bomb += GgufArrayBytes(GgufType::kArray, 1, "");
  EXPECT_THAT(MessageFor(GgufBytes().Value("k", GgufType::kArray, bomb)), HasSubstr("deeper than 4"));
}

TEST(GgufMetadata, DuplicateKeys) {
  const std::string array = GgufArrayBytes(GgufType::kU8, 1, "x");
  EXPECT_THAT(MessageFor(GgufBytes().Value("k", GgufType::kU8, "x").Value("k", GgufType::kU8, "x")),
              HasSubstr("metadata \"k\" occurs twice"));
  EXPECT_THAT(MessageFor(GgufBytes().Value("k", GgufType::kArray, array).Value("k", GgufType::kU8, "x")),
              HasSubstr("metadata \"k\" occurs twice"));
}

TEST(GgufMetadata, ValuesThatAreNone) {
  EXPECT_THAT(MessageFor(GgufBytes().Value("k", GgufType::kBool, "\x02")), HasSubstr("\"k\": a bool of 2"));
  EXPECT_THAT(MessageFor(GgufBytes().Value("k", GgufType::kString, GgufString("\xff"))),
              HasSubstr("\"\\xff\" is not UTF-8"));
  EXPECT_THAT(MessageFor(GgufBytes().Value("k\xff\n\x1b[31m", GgufType::kU8, "x")),
              HasSubstr("is not UTF-8"));
}

TEST(GgufMetadata, IntegersThatDoNotFit) {
  const std::string elements = LittleEndian(5, 8) + LittleEndian(kHuge, 8);
  const TempFolder folder;
  const GgufFile file(folder.Write(
      "w.gguf",
      GgufBytes().Value("k", GgufType::kArray, GgufArrayBytes(GgufType::kU64, 2, elements)).Bytes()));
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { file.IntArray("k"); }),
              HasSubstr("\"k\": 9223372036854775808 is larger"));
}

TEST(GgufAlignment, MustBeAPowerOfTwo) {
  for (const uint64_t alignment : {0, 13, 48}) {
    EXPECT_THAT(
        MessageFor(GgufBytes().Value("general.alignment", GgufType::kU32, LittleEndian(alignment, 4))),
        HasSubstr(fmt::format("\"general.alignment\": {} is not an alignment; a power of two", alignment)));
  }
  EXPECT_THAT(MessageFor(GgufBytes().Value("general.alignment", GgufType::kU64, LittleEndian(64, 8))),
              HasSubstr("type uint64, uint32 is expected"));
}

TEST(GgufAlignment, AppliesToTheDataAndItsTensors) {
  const auto file = [](uint64_t alignment, uint64_t offset) {
    GgufBytes bytes;
    bytes.alignment = alignment;
    return bytes.Value("general.alignment", GgufType::kU32, LittleEndian(alignment, 4))
        .Tensor("t", {1}, kF32, offset)
        .Data(std::string(offset, '\0') + "1234");
  };
  const TempFolder folder;
  for (const uint64_t alignment : {1, 8, 512}) {
    const GgufFile read(folder.Write("w.gguf", file(alignment, alignment).Bytes()));
    EXPECT_EQ(std::memcmp(read.tensors().at("t").bytes.data(), "1234", 4), 0) << alignment;
  }
  EXPECT_THAT(MessageFor(file(8, 12)), HasSubstr("\"t\" starts at byte 12 of the data, a multiple of 8"));
  EXPECT_THAT(MessageForTensor({1}, kF32, 4), HasSubstr("starts at byte 4 of the data, a multiple of 32"));
}

TEST(GgufAlignment, BeyondTheFile) {
  GgufBytes bytes = GgufBytes()
                        .Value("general.alignment", GgufType::kU32, LittleEndian(uint64_t{1} << 31, 4))
                        .Tensor("t", {1}, kF32, 0)
                        .Data("1234");
  EXPECT_THAT(MessageFor(bytes), HasSubstr("but there are 0 in all"));
}

TEST(GgufTensor, Dimensions) {
  EXPECT_THAT(MessageForTensor({1, 1, 1, 1, 1}, kF32), HasSubstr("\"t\": 5 dimensions, at most 4"));
  GgufBytes many;
  many.tensors = GgufString("t") + LittleEndian(UINT32_MAX, 4) + std::string(64, '\1');
  many.tensor_count = 1;
  EXPECT_THAT(MessageFor(many), HasSubstr("4294967295 dimensions"));
  EXPECT_THAT(MessageForTensor({0}, kF32), HasSubstr("\"t\": 0 is not a dimension"));
  EXPECT_THAT(MessageForTensor({4, 0}, kF32), HasSubstr("0 is not a dimension"));
  EXPECT_THAT(MessageForTensor({kHuge}, kF32), HasSubstr("9223372036854775808 is not a dimension"));
}

TEST(GgufTensor, ShapesThatWrap) {
  const uint64_t k32 = uint64_t{1} << 32, k62 = uint64_t{1} << 62;
  for (const std::vector<uint64_t>& dimensions : std::vector<std::vector<uint64_t>>{
           {k32, k32}, {k62, 4}, {2, k62}, {k32, k32, k32, k32}, {4, k62, 1, 1}}) {
    EXPECT_THAT(MessageForTensor(dimensions, 24 /*I8*/), HasSubstr("larger than any memory"));
  }
  EXPECT_THAT(MessageForTensor({uint64_t{1} << 61}, kF64),
              HasSubstr("[2305843009213693952] of F64 is larger"));
}

TEST(GgufTensor, Types) {
  EXPECT_THAT(MessageForTensor({1}, 42), HasSubstr("\"t\": unknown type 42"));
  EXPECT_THAT(MessageForTensor({1}, UINT32_MAX), HasSubstr("unknown type 4294967295"));
  EXPECT_THAT(MessageForTensor({32}, 4), HasSubstr("type Q4_2, which ggml has given up"));
  EXPECT_THAT(MessageForTensor({32}, 31), HasSubstr("type Q4_0_4_4"));
}

TEST(GgufTensor, RowsOfBrokenBlocks) {
  EXPECT_THAT(MessageForTensor({33}, kQ8_0),
              HasSubstr("\"t\": rows of 33 values cannot be Q8_0, whose blocks hold 32"));
  EXPECT_THAT(MessageForTensor({128, 2}, kQ4_K), HasSubstr("rows of 128 values cannot be Q4_K"));
  EXPECT_THAT(MessageForTensor({}, kQ8_0), HasSubstr("rows of 1 values"));
}

TEST(GgufTensor, OffsetsOutOfTheFile) {
  EXPECT_THAT(MessageForTensor({17}, kF32), AllOf(HasSubstr("\"t\": 68 bytes from byte 0 of the data"),
                                                  HasSubstr("there are 64"), HasSubstr("incomplete")));
  EXPECT_THAT(MessageForTensor({9}, kF32, 32), HasSubstr("36 bytes from byte 32"));
  EXPECT_THAT(MessageForTensor({1}, kF32, 96), HasSubstr("4 bytes from byte 96"));
  EXPECT_THAT(MessageForTensor({8}, kF32, UINT64_MAX - 31), HasSubstr("from byte 18446744073709551584"));
}

TEST(GgufTensor, Overlap) {
  EXPECT_THAT(
      MessageFor(GgufBytes().Tensor("b", {1}, kF32, 32).Tensor("a", {9}, kF32, 0).Data(std::string(64, 'd'))),
      HasSubstr("\"b\" starts at byte 32 of the data and overlaps \"a\", which ends at 36"));
  EXPECT_THAT(MessageFor(GgufBytes().Tensor("a", {1}, kF32, 0).Tensor("b", {1}, kF32, 0).Data("1234")),
              HasSubstr("overlaps \"a\""));
}

TEST(GgufTensor, Names) {
  EXPECT_THAT(
      MessageFor(GgufBytes().Tensor("t", {1}, kF32, 0).Tensor("t", {1}, kF32, 32).Data(std::string(64, 'd'))),
      HasSubstr("tensor \"t\" occurs twice"));
  EXPECT_THAT(MessageFor(GgufBytes().Tensor("t\xc0", {1}, kF32, 0).Data("1234")),
              HasSubstr("tensor 1 of 1: the name \"t\\xc0\" is not UTF-8"));
  MessageFor(GgufBytes().Tensor(std::string(100'000, '\n'), {0}, kF32, 0));
}

TEST(GgufRestoredShape, MustHoldTheSameElements) {
  const auto message = [](const std::vector<int64_t>& shape) {
    std::string elements;
    for (const int64_t dimension : shape) elements += LittleEndian(static_cast<uint64_t>(dimension), 8);
    return MessageFor(GgufBytes()
                          .Value("comfy.gguf.orig_shape.t", GgufType::kArray,
                                 GgufArrayBytes(GgufType::kI64, shape.size(), elements))
                          .Tensor("t", {16}, kF32, 0)
                          .Data(std::string(64, 'd')));
  };
  EXPECT_THAT(message({3, 5}),
              HasSubstr("is [3, 5], which does not hold as many elements as the tensor's [16]"));
  EXPECT_THAT(message({-4, -4}), HasSubstr("[-4, -4]"));
  EXPECT_THAT(message({0, 16}), HasSubstr("[0, 16]"));
  EXPECT_THAT(message({16, 17 * 241 * 61681, 4562284561}), HasSubstr("does not hold"));  // 2⁶⁴ + 16 elements
  EXPECT_THAT(message({}), HasSubstr("does not hold"));
  EXPECT_THAT(message(std::vector<int64_t>(33, 1)), HasSubstr("33 dimensions, at most 32"));
}

TEST(GgufRestoredShape, MustBeAnArrayOfIntegers) {
  EXPECT_THAT(MessageFor(GgufBytes()
                             .Value("comfy.gguf.orig_shape.t", GgufType::kString, GgufString("[4, 4]"))
                             .Tensor("t", {16}, kF32, 0)
                             .Data(std::string(64, 'd'))),
              HasSubstr("is a single value, an array of integers is expected"));
}

TEST(GgufHostile, CutAtEveryByte) {
  const std::string whole = Small().Bytes();
  for (size_t size = 0; size < whole.size(); ++size) MessageFor(std::string_view(whole).substr(0, size));
}

TEST(GgufHostile, EveryByteChanged) {
  const std::string whole = Small().Bytes();
  const TempFolder folder;
  int refused = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int change : {0x01, 0x08, 0x20, 0x80, 0xff}) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ change);
      try {
        const GgufFile file(folder.Write("w.gguf", bytes));
        size_t sum = 0;  // of all bytes, so that a sanitizer sees spans that are not in the file
        for (const auto& [name, tensor] : file.tensors()) {
          for (const std::byte byte : tensor.bytes) sum += std::to_integer<size_t>(byte);
        }
        EXPECT_LT(sum, whole.size() * 256);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << error.message();
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace qwen_image
