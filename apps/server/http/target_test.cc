#include "server/http/target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace qwen_image::http {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(Target, PathAndQuery) {
  const auto target = ParseTarget("/jobs/1?download=1&a=%41+b%20c&x&=y&download=2");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->path, "/jobs/1");
  EXPECT_THAT(target->query, ElementsAre(Pair("a", "A b c"), Pair("download", "1"), Pair("x", "")));
  EXPECT_EQ(ParseTarget("/")->path, "/");
  EXPECT_THAT(ParseTarget("/?")->query, IsEmpty());
  EXPECT_EQ(ParseTarget("/%2e%2e/x")->path, "/%2e%2e/x");  // never decoded
}

TEST(Target, OthersAreRefused) {
  for (const char* text : {"", "*", "http://127.0.0.1/", "jobs", "/?a=%", "/?a=%4", "/?a=%zz", "/?%=1"})
    EXPECT_FALSE(ParseTarget(text)) << text;
  std::string many = "/?";
  for (int i = 0; i < 33; ++i) many += "a&";
  EXPECT_FALSE(ParseTarget(many));
}

}  // namespace
}  // namespace qwen_image::http
