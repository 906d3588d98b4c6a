// The quantized formats are compared with the reference in files/gguf_golden_test.cc; here are the table and
// blocks that can be worked out by hand.
#include "core/block_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace qwen_image {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

// `bytes` as a block of the format, decoded from an odd address.
std::vector<float> Decode(std::string_view name, std::string_view bytes) {
  const BlockFormat* format = FindBlockFormat(name);
  if (!format || bytes.size() % static_cast<size_t>(format->bytes) != 0) {
    ADD_FAILURE() << name << " cannot be " << bytes.size() << " bytes";
    return {};
  }
  const auto count = static_cast<int64_t>(bytes.size()) / format->bytes;
  std::vector<std::byte> unaligned(bytes.size() + 1);
  std::memcpy(unaligned.data() + 1, bytes.data(), bytes.size());
  std::vector<float> values(static_cast<size_t>(count * format->values));
  format->decode(unaligned.data() + 1, count, values.data());
  return values;
}

constexpr std::string_view kOne("\x00\x3c", 2);  // F16
constexpr std::string_view kTwo("\x00\x40", 2);

std::string Bytes(size_t count, int value) { return std::string(count, static_cast<char>(value)); }

TEST(BlockFormat, TableOfSizes) {
  struct Expected {
    std::string_view name;
    int64_t values, bytes;
  };
  const Expected formats[] = {{"F32", 1, 4},      {"F16", 1, 2},      {"BF16", 1, 2},      {"F64", 1, 8},
                              {"F8_E4M3", 1, 1},  {"F8_E5M2", 1, 1},  {"I8", 1, 1},        {"Q8_0", 32, 34},
                              {"Q4_0", 32, 18},   {"Q4_1", 32, 20},   {"Q5_0", 32, 22},    {"Q5_1", 32, 24},
                              {"Q2_K", 256, 84},  {"Q3_K", 256, 110}, {"Q4_K", 256, 144},  {"Q5_K", 256, 176},
                              {"Q6_K", 256, 210}, {"IQ4_NL", 32, 18}, {"IQ4_XS", 256, 136}};
  for (const Expected& expected : formats) {
    const BlockFormat* format = FindBlockFormat(expected.name);
    ASSERT_NE(format, nullptr) << expected.name;
    EXPECT_EQ(format->name, expected.name);
    EXPECT_EQ(format->values, expected.values) << expected.name;
    EXPECT_EQ(format->bytes, expected.bytes) << expected.name;
  }
}

TEST(BlockFormat, EveryTypeStandsAtItsPlace) {
  for (int i = 0; i < static_cast<int>(DType::kGivenUp); ++i) {
    const auto dtype = static_cast<DType>(i);
    const BlockFormat& type = FormatOf(dtype);
    EXPECT_EQ(type.dtype, dtype) << type.name;
    EXPECT_EQ(NameOf(dtype), type.name);
    EXPECT_EQ(static_cast<int64_t>(SizeOf(dtype)), type.bytes) << type.name;
    EXPECT_EQ(IsPlain(dtype), type.values == 1) << type.name;
    EXPECT_EQ(FindSafetensorsType(type.name), IsPlain(dtype) ? &type : nullptr) << type.name;
    if (!type.npy.empty()) {
      EXPECT_EQ(FindNpyType(type.npy), &type);
    }
  }
}

TEST(BlockFormat, GgmlNumbersHaveNoGap) {
  for (uint32_t number = 0; number <= 41; ++number) {
    const BlockFormat* type = FindGgmlType(number);
    ASSERT_NE(type, nullptr) << number;
    EXPECT_EQ(type->ggml, static_cast<int>(number));
    EXPECT_EQ(type->dtype == DType::kGivenUp, type->bytes == 0) << type->name;
  }
  EXPECT_EQ(FindGgmlType(42), nullptr);
  EXPECT_EQ(FindGgmlType(~0u), nullptr);
  EXPECT_EQ(FindNpyType(""), nullptr);
}

TEST(BlockFormat, OthersAreNotRead) {
  for (const char* name : {"", "q4_k", "Q4_K_M", "IQ2_XXS", "MXFP4", "I32", "F8_E8M0"}) {
    EXPECT_EQ(FindBlockFormat(name), nullptr) << name;
  }
}

TEST(BlockFormat, PlainTypes) {
  const float f32[] = {1.5f, -2.0f};
  EXPECT_THAT(Decode("F32", {reinterpret_cast<const char*>(f32), 8}), ElementsAre(1.5f, -2.0f));
  const double f64[] = {0.1, -2.0};
  EXPECT_THAT(Decode("F64", {reinterpret_cast<const char*>(f64), 16}), ElementsAre(0.1f, -2.0f));
  EXPECT_THAT(Decode("F16", std::string(kOne) + std::string(kTwo)), ElementsAre(1, 2));
  EXPECT_THAT(Decode("BF16", "\x80\x3f\x49\xc0"), ElementsAre(1, -3.140625f));
  EXPECT_THAT(Decode("I8", "\x05\xff\x80"), ElementsAre(5, -1, -128));
  EXPECT_THAT(Decode("F8_E4M3", "\x38\xc0\x7e"), ElementsAre(1, -2, 448));
  EXPECT_THAT(Decode("F8_E5M2", "\x3c\xc0\x7b"), ElementsAre(1, -2, 57344));
}

TEST(BlockFormat, NoBlocksAreNoValues) {
  for (const char* name : {"F32", "F8_E4M3", "Q4_K"}) FindBlockFormat(name)->decode(nullptr, 0, nullptr);
}

TEST(BlockFormat, LowerHalvesOfTheBytesComeFirst) {
  std::vector<float> expected(32, 1.0f);  // 9 - 8
  std::fill(expected.begin() + 16, expected.end(), -3.0f);
  EXPECT_THAT(Decode("Q4_0", std::string(kOne) + Bytes(16, 0x59)), ElementsAreArray(expected));
}

TEST(BlockFormat, MinimumIsAddedInSmallBlocksAndSubtractedInLarge) {
  EXPECT_THAT(Decode("Q4_1", std::string(kTwo) + std::string(kOne) + Bytes(16, 0x33)), Each(2 * 3 + 1));
  // Bytes of 0x41: the scale of all groups but the last four is 1, theirs is 1 + 16; likewise the minima.
  const std::vector<float> values = Decode(
      "Q4_K", std::string(kTwo) + std::string(kOne) + Bytes(8, 0x41) + Bytes(4, 0x11) + Bytes(128, 0x33));
  EXPECT_THAT(std::vector(values.begin(), values.begin() + 128), Each(2 * 1 * 3 - 1));
  EXPECT_THAT(std::vector(values.begin() + 128, values.end()), Each(2 * 17 * 3 - 17));
}

TEST(BlockFormat, BlocksFollowOneAnother) {
  const std::string block = std::string(kOne) + Bytes(32, 7), other = std::string(kTwo) + Bytes(32, -1);
  std::vector<float> expected(32, 7.0f);
  expected.resize(64, -2.0f);
  EXPECT_THAT(Decode("Q8_0", block + other), ElementsAreArray(expected));
}

}  // namespace
}  // namespace qwen_image
