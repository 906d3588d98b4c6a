#include "hub/transfer_rate.h"

#include <gtest/gtest.h>

namespace qwen_image::hub {
namespace {

TEST(TransferRate, IsUnknownAtFirst) {
  TransferRate rate;
  EXPECT_EQ(rate.BytesPerSecond(), 0);
  rate.Update(0, 1000);
  EXPECT_EQ(rate.BytesPerSecond(), 0);
}

TEST(TransferRate, ForgetsWhatWasLongAgo) {
  TransferRate rate;
  for (int second = 0; second <= 100; ++second) rate.Update(second, static_cast<uint64_t>(second) * 10);
  EXPECT_DOUBLE_EQ(rate.BytesPerSecond(), 10);
  for (int second = 1; second <= 40; ++second)
    rate.Update(100 + second, 1000 + static_cast<uint64_t>(second) * 500);
  EXPECT_DOUBLE_EQ(rate.BytesPerSecond(), 500);
}

TEST(TransferRate, BytesThatGoBackAreNoRate) {
  TransferRate rate;
  rate.Update(0, 1000);
  rate.Update(5, 10);
  EXPECT_EQ(rate.BytesPerSecond(), 0);
}

}  // namespace
}  // namespace qwen_image::hub
