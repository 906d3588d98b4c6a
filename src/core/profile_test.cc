#include "core/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace qwen_image {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Le;
using ::testing::Pair;

constexpr double kMicroseconds = 5000;

void Spend() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(5000);
  while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

TEST(Profile, CountsTimeOnceAndByComponent) {
  Profile profile;
  Spend();  // nobody's
  const auto start = std::chrono::steady_clock::now();
  {
    const auto transformer = Profile::Scope::Component(&profile, "transformer");
    Spend();
    {
      const Profile::Scope outer(&profile, "addition");
      Spend();
      const Profile::Scope inner(&profile, "products");
      Spend();
      Spend();
    }
    const Profile::Scope again(&profile, "addition");
    Spend();
  }
  const double all =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  {
    const auto vae = Profile::Scope::Component(&profile, "vae");
    const Profile::Scope scope(&profile, "convolution");
  }
  ASSERT_EQ(profile.components().size(), 2u);
  const Profile::Operations& operations = profile.components().at("transformer");
  EXPECT_THAT(operations,
              ElementsAre(Pair("addition", Ge(2 * kMicroseconds)), Pair("other", Ge(kMicroseconds)),
                          Pair("products", Ge(2 * kMicroseconds))));
  double sum = 0;
  for (const auto& [name, microseconds] : operations) sum += microseconds;
  EXPECT_THAT(sum, AllOf(Ge(5 * kMicroseconds), Le(all)));
  EXPECT_EQ(profile.components().at("vae").count("convolution"), 1u);
}

TEST(Profile, ScopesWithoutOneDoNothing) {
  const auto component = Profile::Scope::Component(nullptr, "vae");
  const Profile::Scope scope(nullptr, "products");
}

TEST(Profile, TimeOutsideOfComponentsIsNobodys) {
  Profile profile;
  { const Profile::Scope scope(&profile, "products"); }
  EXPECT_TRUE(profile.components().empty());
}

}  // namespace
}  // namespace qwen_image
