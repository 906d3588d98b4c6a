#include "keep/prompt_cache.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <set>

#include "files/testing.h"

namespace qwen_image::keep {
namespace {

namespace fs = std::filesystem;

PromptKey KeyOf(std::vector<int64_t> ids) {
  return {.text_encoder = "encoder", .ids = std::move(ids), .dropped = 1, .tokens = 3, .width = 16};
}

Tensor Embeds(float start) {
  Tensor embeds({1, 3, 16});
  for (int64_t i = 0; i < embeds.size(); ++i) embeds[i] = start + static_cast<float>(i);
  return embeds;
}

bool Holds(PromptCache& cache, const PromptKey& key, float start) {
  const auto found = cache.Find(key);
  if (!found) return false;
  const Tensor expected = Embeds(start);
  EXPECT_EQ(found->shape(), expected.shape());
  return std::equal(expected.data(), expected.data() + expected.size(), found->data());
}

TEST(PromptCache, FindsWhatWasKept) {
  const TempFolder folder;
  for (const fs::path& place : {fs::path(), folder.path() / "new/folder"}) {
    PromptCache cache(place);
    EXPECT_FALSE(cache.Find(KeyOf({1, 2, 3, 4})));
    cache.Keep(KeyOf({1, 2, 3, 4}), Embeds(5));
    EXPECT_TRUE(Holds(cache, KeyOf({1, 2, 3, 4}), 5));
    EXPECT_FALSE(cache.Find(KeyOf({1, 2, 3, 5})));
  }
  PromptCache later(folder.path() / "new/folder");
  EXPECT_TRUE(Holds(later, KeyOf({1, 2, 3, 4}), 5));
  EXPECT_EQ(fs::status(folder.path() / "new/folder").permissions(), fs::perms::owner_all);
}

TEST(PromptCache, EveryPartOfTheKeyMatters) {
  const TempFolder folder;
  PromptCache(folder.path()).Keep(KeyOf({1, 2, 3, 4}), Embeds(5));
  const auto finds = [&](const auto& change) {
    PromptKey key = KeyOf({1, 2, 3, 4});
    change(key);
    return PromptCache(folder.path()).Find(key).has_value();
  };
  EXPECT_TRUE(finds([](PromptKey&) {}));
  EXPECT_FALSE(finds([](PromptKey& key) { key.text_encoder = "another"; }));
  EXPECT_FALSE(finds([](PromptKey& key) { key.ids = {12, 3, 4}; }));
  EXPECT_FALSE(finds([](PromptKey& key) { key.dropped = 2; }));
  EXPECT_FALSE(finds([](PromptKey& key) { key.tokens = 2; }));
  EXPECT_FALSE(finds([](PromptKey& key) { key.width = 8; }));
}

TEST(PromptCache, AFileUnderTheNameOfAnotherIsNotTaken) {
  const TempFolder folder;
  const auto only_file = [&] { return fs::directory_iterator(folder.path())->path(); };
  PromptCache(folder.path()).Keep(KeyOf({1, 2, 3, 4}), Embeds(5));
  const fs::path one = only_file();
  const std::string bytes = ReadBytes(one);
  fs::remove(one);
  PromptCache(folder.path()).Keep(KeyOf({1, 2, 3, 9}), Embeds(6));
  const fs::path other = only_file();
  folder.Write(other.filename().string(), bytes);
  PromptCache cache(folder.path());
  EXPECT_FALSE(cache.Find(KeyOf({1, 2, 3, 9})));
  cache.Keep(KeyOf({1, 2, 3, 9}), Embeds(6));
  EXPECT_TRUE(Holds(*std::make_unique<PromptCache>(folder.path()), KeyOf({1, 2, 3, 9}), 6)) << "not replaced";
}

// The files in a folder that were not in it before are made to look this old.
std::set<fs::path> Age(const fs::path& folder, std::set<fs::path> before, std::chrono::hours age) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (before.insert(entry.path()).second)
      fs::last_write_time(entry.path(), fs::file_time_type::clock::now() - age);
  }
  return before;
}

TEST(PromptCache, TheFilesThatWereNotUsedTheLongestGoFirst) {
  const TempFolder folder;
  std::set<fs::path> files = {folder.Write("model.safetensors", std::string(10'000, 'x'))};
  PromptCache(folder.path()).Keep(KeyOf({1, 2, 3, 0}), Embeds(0));
  files = Age(folder.path(), files, std::chrono::hours(9));
  ASSERT_EQ(files.size(), 2u);
  int64_t one_file = 0;
  for (const fs::path& file : files) {
    if (file.filename() != "model.safetensors") one_file = static_cast<int64_t>(fs::file_size(file));
  }

  PromptCache cache(folder.path(), {.memory_bytes = 0, .file_bytes = 4 * one_file - 1});
  for (int64_t i = 1; i < 3; ++i) {
    cache.Keep(KeyOf({1, 2, 3, i}), Embeds(static_cast<float>(i)));
    files = Age(folder.path(), files, std::chrono::hours(9 - i));
  }
  EXPECT_EQ(folder.FileCount(), 4u);
  EXPECT_TRUE(Holds(cache, KeyOf({1, 2, 3, 0}), 0));  // the oldest, but now used
  cache.Keep(KeyOf({1, 2, 3, 4}), Embeds(4));
  EXPECT_EQ(folder.FileCount(), 4u);
  EXPECT_TRUE(Holds(cache, KeyOf({1, 2, 3, 0}), 0));
  EXPECT_FALSE(cache.Find(KeyOf({1, 2, 3, 1})));
  EXPECT_TRUE(Holds(cache, KeyOf({1, 2, 3, 2}), 2));
  EXPECT_TRUE(Holds(cache, KeyOf({1, 2, 3, 4}), 4));
  EXPECT_TRUE(fs::exists(folder.path() / "model.safetensors")) << "another's file was removed";
}

TEST(PromptCache, AFolderOfManyFilesIsNotReadForEveryPrompt) {
  const TempFolder folder;
  PromptCache cache(folder.path(), {.memory_bytes = 0, .file_bytes = 100'000});
  cache.Keep(KeyOf({1, 2, 3, 0}), Embeds(0));
  const fs::path other = folder.Write(std::string(32, 'a') + ".prompt.safetensors",
                                      std::string(100'000, 'x'));  // of another process
  fs::last_write_time(other, fs::file_time_type::clock::now() - std::chrono::hours(9));
  cache.Keep(KeyOf({1, 2, 3, 1}), Embeds(1));
  EXPECT_TRUE(fs::exists(other)) << "the folder was read";
  for (int64_t i = 2; i < 70; ++i) cache.Keep(KeyOf({1, 2, 3, i}), Embeds(2));
  EXPECT_FALSE(fs::exists(other)) << "the limit is forgotten";
}

TEST(PromptCache, FilesAreTheirOwnersAloneInAnyFolder) {
  const TempFolder folder;
  fs::permissions(folder.path(), fs::perms(0755));
  PromptCache(folder.path()).Keep(KeyOf({1, 2, 3, 4}), Embeds(5));
  EXPECT_EQ(fs::directory_iterator(folder.path())->status().permissions(), fs::perms(0600));
}

TEST(PromptCache, WhatKilledWritersLeftIsRemoved) {
  const TempFolder folder;
  const std::string name = "." + std::string(32, 'a') + ".prompt.safetensors.tmp-1-";
  folder.Write(name + "0", "half");
  const std::set<fs::path> old = Age(folder.path(), {}, std::chrono::hours(2));
  folder.Write(name + "1", "under way");
  folder.Write(".mine.tmp-1-0", "");
  PromptCache(folder.path()).Keep(KeyOf({1, 2, 3, 4}), Embeds(0));
  EXPECT_FALSE(fs::exists(folder.path() / (name + "0")));
  EXPECT_TRUE(fs::exists(folder.path() / (name + "1")));
  EXPECT_TRUE(fs::exists(folder.path() / ".mine.tmp-1-0"));
}

TEST(PromptCache, MemoryIsLimited) {
  PromptCache cache({}, {.memory_bytes = 2 * 3 * 16 * 4, .file_bytes = 0});
  for (int64_t i = 0; i < 3; ++i) cache.Keep(KeyOf({i}), Embeds(static_cast<float>(i)));
  EXPECT_FALSE(cache.Find(KeyOf({0})));
  EXPECT_TRUE(Holds(cache, KeyOf({1}), 1));
  cache.Keep(KeyOf({3}), Embeds(3));
  EXPECT_FALSE(cache.Find(KeyOf({2}))) << "1 was used later";
}

TEST(PromptCache, NeverFails) {
  const TempFolder folder;
  folder.Write("file", "");
  PromptCache cache(folder.path() / "file/below");
  cache.Keep(KeyOf({1}), Embeds(1));
  EXPECT_TRUE(Holds(cache, KeyOf({1}), 1)) << "in this process it is there all the same";

  Tensor broken = Embeds(1);
  broken[0] = INFINITY;
  PromptCache(folder.path()).Keep(KeyOf({2}), broken);
  EXPECT_EQ(folder.FileCount(), 1u) << "values that nobody would read";
}

}  // namespace
}  // namespace qwen_image::keep
