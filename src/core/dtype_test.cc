#include "core/dtype.h"

#include <gtest/gtest.h>

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
