#include "catalogue/removal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "catalogue/local.h"
#include "catalogue/testing.h"

namespace qwen_image::catalogue {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Removals : public testing::Test {
 protected:
  const Catalogue catalogue_ = Catalogue::Parse(SmallCatalogue(), "data");
  const Entry &large_ = catalogue_.entries()[0], &small_ = catalogue_.entries()[1];
  const CacheFolder cache_{};
};

TEST_F(Removals, AllOfTheOnlyOne) {
  cache_.Store(small_);
  const Removal removal = PlanRemoval(catalogue_, small_, cache_.path());
  EXPECT_THAT(removal.kept, IsEmpty());
  EXPECT_EQ(Remove(removal, cache_.path()), removal.bytes);
  EXPECT_GT(removal.bytes, 0);
  EXPECT_TRUE(fs::is_empty(cache_.path()));
}

TEST_F(Removals, WhatAnotherOneUsesStays) {
  cache_.Store(small_);
  cache_.Store(large_);
  const Removal removal = PlanRemoval(catalogue_, small_, cache_.path());
  EXPECT_THAT(removal.sources, ElementsAre(small_.transformer, small_.loras[0].source));
  ASSERT_THAT(removal.kept, SizeIs(2));
  EXPECT_EQ(removal.kept[0].why, "fox:large uses it");
  EXPECT_EQ(Remove(removal, cache_.path()), removal.bytes);
  EXPECT_TRUE(StatusOf(large_, cache_.path(), {}).here);
  EXPECT_EQ(PathOf(*small_.transformer, cache_.path()), std::nullopt);
  EXPECT_FALSE(fs::exists(cache_.Repo("owner/loras")));
}

TEST_F(Removals, TwoNamesOfTheSameFilesKeepNothing) {
  Json json = SmallCatalogue();
  Json again = json["models"][1];
  again["name"] = "fox:again";
  json["models"].push_back(again);
  const Catalogue catalogue = Catalogue::Parse(json, "data");
  cache_.Store(small_);
  EXPECT_THAT(PlanRemoval(catalogue, catalogue.entries()[1], cache_.path()).kept, IsEmpty());
}

// One that is not downloaded whole cannot be drawn with: its parts are no reason to keep anything.
TEST_F(Removals, HalfOfAnotherOneKeepsNothing) {
  cache_.Store(small_);
  cache_.Store(*large_.tokenizer);
  EXPECT_THAT(PlanRemoval(catalogue_, small_, cache_.path()).kept, IsEmpty());
}

TEST_F(Removals, ATokenizerOfAModelThatWasPulledOtherwiseStays) {
  cache_.Store(large_);
  cache_.Store("owner/parts", "transformer/model.safetensors", "somebody's");
  const Removal removal = PlanRemoval(catalogue_, large_, cache_.path());
  ASSERT_THAT(removal.kept, SizeIs(1));
  EXPECT_EQ(removal.kept[0].source, large_.tokenizer);
  EXPECT_EQ(removal.kept[0].why, "more of owner/parts is downloaded");
  Remove(removal, cache_.path());
  EXPECT_EQ(ReadBytes(cache_.Snapshot("owner/parts") / "transformer/model.safetensors"), "somebody's");
  EXPECT_TRUE(fs::exists(cache_.Snapshot("owner/parts") / "tokenizer/vocab.json"));
}

}  // namespace
}  // namespace qwen_image::catalogue
