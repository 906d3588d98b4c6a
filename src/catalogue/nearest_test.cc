#include "catalogue/nearest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace qwen_image::catalogue {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Nearest, FewestChangesFirst) {
  const std::vector<std::string> names = {"edit-2511:q4", "qwen-image-2.1:q4", "qwen-image-2.1:turbo-q4",
                                          "tiny"};
  EXPECT_THAT(Nearest("qwen-image-2.1:turbo-q5", names, 2),
              ElementsAre("qwen-image-2.1:turbo-q4", "qwen-image-2.1:q4"));
  EXPECT_THAT(Nearest("edit2511:q4", names, 1), ElementsAre("edit-2511:q4"));
  EXPECT_THAT(Nearest("tinny", names, 1), ElementsAre("tiny"));
  EXPECT_THAT(Nearest("QWEN-IMAGE-2.1:Q4", names, 1), ElementsAre("qwen-image-2.1:q4"));
}

TEST(Nearest, OddTexts) {
  EXPECT_THAT(Nearest("x", {}, 3), IsEmpty());
  EXPECT_THAT(Nearest("", {"ab", "a"}, 3), ElementsAre("a", "ab"));
  EXPECT_THAT(Nearest(std::string(1'000'000, 'x'), {std::string(1'000'000, 'y'), "x"}, 1).size(), 1);
}

}  // namespace
}  // namespace qwen_image::catalogue
