#include "files/numbers.h"

#include <gtest/gtest.h>

namespace qwen_image {
namespace {

TEST(ParseNumber, TakesDecimalNumbers) {
  EXPECT_EQ(ParseNumber("0.8"), 0.8);
  EXPECT_EQ(ParseNumber("-1"), -1.0);
  EXPECT_EQ(ParseNumber(".5"), 0.5);
  EXPECT_EQ(ParseNumber("1e-06"), 1e-6);
  EXPECT_EQ(ParseNumber("151643"), 151643.0);
}

TEST(ParseNumber, TakesNothingElse) {
  for (const char* text :
       {"", " 1", "1 ", "+1", "1x", "0x10", "one", "-", ".", "nan", "inf", "1e999", "1,5", "1e"})
    EXPECT_EQ(ParseNumber(text), std::nullopt) << text;
}

}  // namespace
}  // namespace qwen_image
