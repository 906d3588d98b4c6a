#include "core/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace qwen_image {
namespace {

TEST(DType, Bf16IsTheUpperHalfOfAFloat) {
  EXPECT_EQ(FloatFromBf16(0x3f80), 1.0f);
  EXPECT_EQ(FloatFromBf16(0xc049), -3.140625f);
  EXPECT_TRUE(std::isnan(FloatFromBf16(0x7fc0)));
}

TEST(DType, F16CoversNormalsSubnormalsAndInfinities) {
  EXPECT_EQ(FloatFromF16(0x3c00), 1.0f);
  EXPECT_EQ(FloatFromF16(0xc248), -3.140625f);
  EXPECT_EQ(FloatFromF16(0x7bff), 65504.0f);
  EXPECT_EQ(FloatFromF16(0x0001), 0x1p-24f);
  EXPECT_EQ(FloatFromF16(0x8001), -0x1p-24f);
  EXPECT_EQ(FloatFromF16(0x0400), 0x1p-14f);
  EXPECT_TRUE(std::signbit(FloatFromF16(0x8000)));
  EXPECT_EQ(FloatFromF16(0x7c00), INFINITY);
  EXPECT_EQ(FloatFromF16(0xfc00), -INFINITY);
  EXPECT_TRUE(std::isnan(FloatFromF16(0x7e00)));
}

// An IEEE-like number of 1 sign bit, `exponent_bits` and `mantissa_bits`, from its definition.
double Value(int code, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int mantissa = code & ((1 << mantissa_bits) - 1);
  const int hidden = exponent == 0 ? 0 : 1 << mantissa_bits;
  const double magnitude = std::ldexp(mantissa + hidden, std::max(exponent, 1) - bias - mantissa_bits);
  return code >> (exponent_bits + mantissa_bits) ? -magnitude : magnitude;
}

TEST(DType, EveryFiniteF16) {
  for (int code = 0; code < 0x10000; ++code) {
    if ((code & 0x7c00) == 0x7c00) continue;
    const float value = FloatFromF16(static_cast<uint16_t>(code));
    ASSERT_EQ(value, Value(code, 5, 10)) << code;
    ASSERT_EQ(std::signbit(value), code >= 0x8000) << code;
  }
}

TEST(DType, EveryE4M3) {
  for (int code = 0; code < 256; ++code) {
    const float value = FloatFromE4M3(static_cast<uint8_t>(code));
    EXPECT_EQ(std::signbit(value), code >= 0x80) << code;
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_EQ(value, Value(code, 4, 3)) << code;
    }
  }
  EXPECT_EQ(FloatFromE4M3(0x7e), 448.0f);  // the largest, as torch.finfo(torch.float8_e4m3fn).max says
  EXPECT_EQ(FloatFromE4M3(0x81), -0x1p-9f);
}

TEST(DType, EveryE5M2) {
  for (int code = 0; code < 256; ++code) {
    const float value = FloatFromE5M2(static_cast<uint8_t>(code));
    EXPECT_EQ(std::signbit(value), code >= 0x80) << code;
    if ((code & 0x7f) > 0x7c) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else if ((code & 0x7f) == 0x7c) {
      EXPECT_TRUE(std::isinf(value)) << code;
    } else {
      EXPECT_EQ(value, Value(code, 5, 2)) << code;
    }
  }
  EXPECT_EQ(FloatFromE5M2(0x7b), 57344.0f);
}

TEST(DType, ConvertsFromUnalignedBytes) {
  std::vector<unsigned char> bytes(1 + 2 * 3);
  const uint16_t values[] = {0x3f80, 0x4000, 0xbf80};
  std::memcpy(bytes.data() + 1, values, sizeof(values));
  float out[3];
  ConvertToFloat(bytes.data() + 1, DType::kBF16, 3, out);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], 2.0f);
  EXPECT_EQ(out[2], -1.0f);
}

}  // namespace
}  // namespace qwen_image
