#include "weights/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/block_format.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

using ::testing::ElementsAre;
using ::testing::IsNan;

std::vector<double> ValuesOf(const std::string& dtype, const std::string& bytes, int64_t count) {
  StoredTensor entry{
      .dtype = FindSafetensorsType(dtype)->dtype, .shape = {count}, .bytes = std::as_bytes(std::span(bytes))};
  const WeightTensor tensor(StoredIn{&entry, nullptr});
  EXPECT_TRUE(tensor.HasNumbers());
  EXPECT_EQ(tensor.NumberCount(), count);
  std::vector<double> read(static_cast<size_t>(count));
  tensor.ReadNumbers(0, count, read.data());
  return read;
}

TEST(WeightTensor, ReadsEveryType) {
  EXPECT_THAT(ValuesOf("F32", LittleEndian(0x3fc00000, 4), 1), ElementsAre(1.5));
  EXPECT_THAT(ValuesOf("F64", LittleEndian(0xbff8000000000000, 8), 1), ElementsAre(-1.5));
  EXPECT_THAT(ValuesOf("F16", LittleEndian(0xbe00, 2), 1), ElementsAre(-1.5));
  EXPECT_THAT(ValuesOf("BF16", LittleEndian(0x3fc0, 2), 1), ElementsAre(1.5));
  EXPECT_THAT(ValuesOf("I8", "\xfe\x02", 2), ElementsAre(-2, 2));
  EXPECT_THAT(ValuesOf("U8", "\xfe", 1), ElementsAre(254));
  EXPECT_THAT(ValuesOf("I16", LittleEndian(0xfffe, 2), 1), ElementsAre(-2));
  EXPECT_THAT(ValuesOf("U16", LittleEndian(0xfffe, 2), 1), ElementsAre(65534));
  EXPECT_THAT(ValuesOf("I32", LittleEndian(0xfffffffe, 4), 1), ElementsAre(-2));
  EXPECT_THAT(ValuesOf("U32", LittleEndian(0xfffffffe, 4), 1), ElementsAre(4294967294.0));
  EXPECT_THAT(ValuesOf("I64", LittleEndian(~uint64_t{1}, 8), 1), ElementsAre(-2));
  EXPECT_THAT(ValuesOf("U64", LittleEndian(7, 8), 1), ElementsAre(7));
  EXPECT_THAT(ValuesOf("BOOL", std::string("\x00\x01\x05", 3), 3), ElementsAre(0, 1, 1));
}

TEST(WeightTensor, ReadsEightBitFloats) {
  // The largest, the smallest, one, minus one and a half; NaN.
  EXPECT_THAT(ValuesOf("F8_E4M3", "\x7e\x01\x38\xbc\x7f", 5), ElementsAre(448, 0x1p-9, 1, -1.5, IsNan()));
  EXPECT_THAT(ValuesOf("F8_E5M2", "\x7b\x01\x3c\xbe\x7c\x7d", 6),
              ElementsAre(57344, 0x1p-16, 1, -1.5, std::numeric_limits<double>::infinity(), IsNan()));
}

// A scale for each row counts in the row's numbers, wherever a piece begins.
TEST(WeightTensor, NumbersOfScaledRows) {
  const std::string bytes(3 * 400, '\x02');
  const std::string scales =
      LittleEndian(0x3f800000, 4) + LittleEndian(0x40000000, 4) + LittleEndian(0x40400000, 4);
  const StoredTensor values{DType::kI8, {3, 400}, std::as_bytes(std::span(bytes))};
  const StoredTensor scale{DType::kF32, {3, 1}, std::as_bytes(std::span(scales))};
  const WeightTensor tensor(StoredIn{&values, nullptr}, StoredIn{&scale, nullptr});
  std::vector<double> read(944);
  tensor.ReadNumbers(256, 944, read.data());
  EXPECT_EQ(read[0], 2);
  EXPECT_EQ(read[143], 2);
  EXPECT_EQ(read[144], 4);
  EXPECT_EQ(read[544], 6);
  EXPECT_EQ(read[943], 6);
}

}  // namespace
}  // namespace qwen_image
