#include "core/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
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

// A number between two of a type's goes to the nearer one, and from the middle to the one whose code is even.
template <typename Round, typename Read>
void ExpectRoundedToNearest(int codes, const Round& round, const Read& read) {
  for (int code = 0; code + 1 < codes; ++code) {
    const auto here = static_cast<uint16_t>(code), next = static_cast<uint16_t>(code + 1);
    const float low = read(here), high = read(next), middle = low + (high - low) / 2;
    for (const int sign : {1, -1}) {
      const auto coded = [&](uint16_t c) { return static_cast<uint16_t>(sign < 0 ? c | 0x8000 : c); };
      const auto signed_value = [&](float v) { return std::copysign(v, static_cast<float>(sign)); };
      ASSERT_EQ(round(signed_value(low)), coded(here)) << code;
      ASSERT_EQ(round(signed_value(middle)), coded(code % 2 == 0 ? here : next)) << code;
      ASSERT_EQ(round(signed_value(std::nextafter(middle, low))), coded(here)) << code;
      ASSERT_EQ(round(signed_value(std::nextafter(middle, high))), coded(next)) << code;
    }
  }
}

TEST(DType, RoundsToF16) {
  ExpectRoundedToNearest(0x7c00, F16FromFloat, FloatFromF16);
  EXPECT_EQ(F16FromFloat(65519.996f), 0x7bff);
  EXPECT_EQ(F16FromFloat(65520.0f), 0x7c00);
  EXPECT_EQ(F16FromFloat(-INFINITY), 0xfc00);
  EXPECT_TRUE(std::isnan(FloatFromF16(F16FromFloat(std::bit_cast<float>(0xff800001)))));
}

TEST(DType, RoundsToBf16) {
  ExpectRoundedToNearest(0x7f80, Bf16FromFloat, FloatFromBf16);
  EXPECT_EQ(Bf16FromFloat(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(Bf16FromFloat(-INFINITY), 0xff80);
  EXPECT_TRUE(std::isnan(FloatFromBf16(Bf16FromFloat(std::bit_cast<float>(0xff800001)))));
}

TEST(DType, ConvertsBothWays) {
  const float values[] = {1.5f, -0.25f, 0x1p-20f};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    std::vector<unsigned char> bytes(3 * SizeOf(dtype) + 1);
    float back[3] = {};
    ConvertFromFloat(values, dtype, 3, bytes.data() + 1);
    ConvertToFloat(bytes.data() + 1, dtype, 3, back);
    EXPECT_TRUE(std::equal(values, values + 3, back)) << NameOf(dtype);
  }
}

}  // namespace
}  // namespace qwen_image
