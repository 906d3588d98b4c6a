#include "random_hex.h"

#include <gtest/gtest.h>

namespace qwen_image {
namespace {

TEST(RandomHex, HasSoManyDigitsAndIsNotTheSameTwice) {
  for (const size_t digits : {16, 32}) {
    const std::string text = RandomHex(digits);
    EXPECT_EQ(text.size(), digits);
    EXPECT_EQ(text.find_first_not_of("0123456789abcdef"), text.npos) << text;
    EXPECT_NE(RandomHex(digits), text);
  }
}

}  // namespace
}  // namespace qwen_image
