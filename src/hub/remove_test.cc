#include "hub/remove.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "files/testing.h"
#include "hub/cache.h"

namespace qwen_image::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kOne(40, '1'), kTwo(40, '2');

class HubRemove : public testing::Test {
 protected:
  HubRemove() { outside_.Write("precious", "do not touch"); }
  ~HubRemove() override { EXPECT_EQ(ReadBytes(outside_.path() / "precious"), "do not touch"); }

  void Store(const std::string& commit, const std::string& path, const std::string& bytes) const {
    const std::string hash = fmt::format("{:040x}", std::hash<std::string>()(bytes));
    cache_.Write("models--owner--model/blobs/" + hash, bytes);
    LinkBlob(repo_, commit, path, hash);
    WriteRef(repo_, "main", commit);
  }
  RemovedFiles Remove(const std::vector<std::string>& paths) const {
    return RemoveFiles(cache_.path(), *ParseRepoId("owner/model"), paths);
  }
  fs::path Snapshot(const std::string& commit) const { return repo_ / "snapshots" / commit; }
  size_t Blobs() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(repo_ / "blobs"), fs::directory_iterator()));
  }

  const TempFolder cache_, outside_;
  const fs::path repo_ = cache_.path() / "models--owner--model";
};

TEST_F(HubRemove, AFileAndItsContents) {
  Store(kOne, "a/b/c.gguf", "12345");
  Store(kOne, "d.json", "{}");
  const RemovedFiles removed = Remove({"a/b/c.gguf", "absent/x"});
  EXPECT_EQ(removed.bytes, 5);
  EXPECT_THAT(removed.paths, ElementsAre("a/b/c.gguf"));
  EXPECT_FALSE(fs::exists(Snapshot(kOne) / "a"));
  EXPECT_EQ(Blobs(), 1);
  EXPECT_EQ(FindSnapshot(cache_.path(), *ParseRepoId("owner/model")), Snapshot(kOne));
}

TEST_F(HubRemove, TheLastFileTakesTheFolderWithIt) {
  Store(kOne, "a.gguf", "12345");
  cache_.Write("models--owner--model/refs/refs/pr/7", kOne);
  cache_.Write("models--owner--model/blobs/" + kTwo + ".incomplete", "half");
  EXPECT_EQ(Remove({"a.gguf"}).bytes, 9);
  EXPECT_FALSE(fs::exists(repo_));
}

TEST_F(HubRemove, WhatAnInterruptedFirstDownloadLeft) {
  cache_.Write("models--owner--model/blobs/" + kTwo + ".incomplete", "half");
  EXPECT_EQ(Remove({"a.gguf"}).bytes, 4);
  EXPECT_FALSE(fs::exists(repo_));
  EXPECT_EQ(Remove({"a.gguf"}).bytes, 0);  // nothing is there
}

TEST_F(HubRemove, AllRevisions) {
  Store(kOne, "a.gguf", "old");
  Store(kTwo, "a.gguf", "newer");
  Store(kTwo, "b.json", "{}");
  EXPECT_EQ(Remove({"a.gguf"}).bytes, 8);
  EXPECT_FALSE(fs::exists(Snapshot(kOne)));
  EXPECT_EQ(ReadBytes(Snapshot(kTwo) / "b.json"), "{}");
}

TEST_F(HubRemove, ContentsWithAnotherNameStay) {
  Store(kOne, "a.gguf", "same");
  Store(kOne, "b.gguf", "same");
  EXPECT_EQ(Remove({"a.gguf"}).bytes, 0);
  EXPECT_EQ(ReadBytes(Snapshot(kOne) / "b.gguf"), "same");
}

TEST_F(HubRemove, FilesInsteadOfLinks) {  // as huggingface_hub stores them where there are no links
  cache_.Write("models--owner--model/snapshots/" + kOne + "/a.gguf", "12345");
  EXPECT_EQ(Remove({"a.gguf"}).bytes, 5);
  EXPECT_FALSE(fs::exists(repo_));
}

TEST_F(HubRemove, LinksThatLeadOutside) {
  Store(kOne, "z.json", "{}");
  const fs::path precious = outside_.path() / "precious";
  fs::create_symlink(precious, Snapshot(kOne) / "absolute");
  fs::create_symlink(precious.lexically_relative(Snapshot(kOne)), Snapshot(kOne) / "relative");
  fs::create_symlink("../../blobs/../../../precious", Snapshot(kOne) / "dots");
  fs::create_symlink("../../blobs/..", Snapshot(kOne) / "folder");
  const RemovedFiles removed = Remove({"absolute", "relative", "dots", "folder"});
  EXPECT_EQ(removed.bytes, 0);
  EXPECT_THAT(removed.paths, ElementsAre("absolute", "relative", "dots", "folder"));  // the links alone
  EXPECT_EQ(ReadBytes(Snapshot(kOne) / "z.json"), "{}");
}

TEST_F(HubRemove, ABlobThatIsALink) {
  Store(kOne, "a.gguf", "12345");
  const fs::path blob = fs::canonical(Snapshot(kOne) / "a.gguf");
  fs::remove(blob);
  fs::create_symlink(outside_.path() / "precious", blob);
  EXPECT_EQ(Remove({"a.gguf"}).bytes, 0);
}

TEST_F(HubRemove, FoldersThatAreLinks) {
  // A part of the path, a snapshot, the blobs.
  Store(kOne, "z.json", "{}");
  fs::create_directory_symlink(outside_.path(), Snapshot(kOne) / "part");
  fs::create_directory_symlink(outside_.path(), Snapshot(kTwo));
  EXPECT_THAT(Remove({"part/precious", "precious"}).paths, IsEmpty());
  fs::rename(repo_ / "blobs", repo_ / "moved");
  fs::create_directory_symlink(outside_.path(), repo_ / "blobs");
  fs::create_symlink("../../blobs/precious", Snapshot(kOne) / "through");
  EXPECT_EQ(Remove({"through"}).bytes, 0);
  // The snapshots, the repository.
  fs::remove_all(repo_);
  fs::create_directories(repo_);
  fs::create_directory_symlink(outside_.path(), repo_ / "snapshots");
  const auto refusal = [&] { return MessageOf(ErrorKind::kBadInput, [&] { Remove({"precious"}); }); };
  EXPECT_THAT(refusal(), HasSubstr("snapshots is a link"));
  fs::remove_all(repo_);
  fs::create_directory_symlink(outside_.path(), repo_);
  EXPECT_THAT(refusal(), HasSubstr("nothing was deleted"));
}

TEST_F(HubRemove, PathsThatLeadOut) {
  Store(kOne, "a.gguf", "1");
  for (const char* path : {"../a", "/etc/passwd", "", "a//b", "."})
    EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { Remove({path}); }), HasSubstr("not a path")) << path;
}

}  // namespace
}  // namespace qwen_image::hub
