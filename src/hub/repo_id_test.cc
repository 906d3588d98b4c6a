#include "hub/repo_id.h"

#include <gtest/gtest.h>

namespace qwen_image::hub {
namespace {

TEST(RepoId, NameAndRevision) {
  const auto plain = ParseRepoId("Qwen/Qwen-Image");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->owner, "Qwen");
  EXPECT_EQ(plain->name, "Qwen-Image");
  EXPECT_EQ(plain->Revision(), "main");
  EXPECT_EQ(plain->ToString(), "Qwen/Qwen-Image");
  const auto pinned = ParseRepoId("mlx-community/Qwen_Image.2512-4bit@refs/pr/3");
  ASSERT_TRUE(pinned);
  EXPECT_EQ(pinned->FullName(), "mlx-community/Qwen_Image.2512-4bit");
  EXPECT_EQ(pinned->Revision(), "refs/pr/3");
  EXPECT_EQ(pinned->ToString(), "mlx-community/Qwen_Image.2512-4bit@refs/pr/3");
}

TEST(RepoId, RefusesWhatHuggingFaceRefuses) {
  for (const std::string text :
       {"",        "/",          "name",  "owner/",   "/name",  "a/b/c",   "./model", "../model",
        "~/model", "/tmp/model", "a b/c", "a/b--c",   "a/..",   "a/b..c",  "-a/b",    "a/b.",
        "a/b.git", "a/\xc3\xa9", "a/b@",  "a/b@../x", "a/b@/x", "a/b@x\n", "a\\b/c"}) {
    EXPECT_FALSE(ParseRepoId(text)) << text;
  }
  EXPECT_TRUE(ParseRepoId("a/" + std::string(94, 'b')));
  EXPECT_FALSE(ParseRepoId("a/" + std::string(95, 'b')));
}

TEST(PlainPath, StaysBelowItsFolder) {
  for (const std::string path : {"a", "a/b.json", "..a/b..", ".hidden", "\xc3\xa9/x", "a b"}) {
    EXPECT_TRUE(IsPlainPath(path)) << path;
  }
  for (const std::string path : {"", "/a", "..", "a/../b", "../a", "a//b", "a/", "./a", "a/.", "a\\b", "a\nb",
                                 "a\x1b[2J", "a\x7f", "\xff"}) {
    EXPECT_FALSE(IsPlainPath(path)) << path;
  }
  EXPECT_FALSE(IsPlainPath(std::string("a\0b", 3)));
  EXPECT_FALSE(IsPlainPath(std::string(256, 'a')));
}

}  // namespace
}  // namespace qwen_image::hub
