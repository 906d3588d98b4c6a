#include "convert/working_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "files/testing.h"

namespace qwen_image::convert {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Working : public testing::Test {
 protected:
  fs::path Target() const { return folder_.path() / "out"; }
  fs::path Partial() const { return folder_.path() / "out.partial"; }
  std::string Refused(const Json& plan, bool overwrite = false) const {
    return MessageOf(ErrorKind::kCannotWrite, [&] { WorkingFolder(Target(), plan, overwrite); });
  }
  // A file of the model, noted as finished.
  static void Finish(const WorkingFolder& folder, const std::string& name, const std::string& bytes) {
    fs::create_directories((folder.model() / name).parent_path());
    std::ofstream(folder.model() / name) << bytes;
    folder.NoteFinished(name, name);
  }
  const TempFolder folder_;
};

TEST_F(Working, AppearsWhenItIsWhole) {
  {
    WorkingFolder folder(Target(), "plan", false);
    Finish(folder, "a/x", "12345");
    EXPECT_FALSE(fs::exists(Target()));
    folder.MoveIntoPlace();
    EXPECT_EQ(ReadBytes(Target() / "a/x"), "12345");
  }
  EXPECT_EQ(folder_.FileCount(), 1u);
}

TEST_F(Working, LeavesNothingIfNothingIsFinished) {
  {
    const WorkingFolder folder(Target(), "plan", false);
    std::ofstream(folder.model() / "half") << "x";
  }
  EXPECT_EQ(folder_.FileCount(), 0u);
}

TEST_F(Working, IsContinued) {
  {
    const WorkingFolder folder(Target(), "plan", false);
    Finish(folder, "a/x", "12345");
    Finish(folder, "a/short", "12345");
    std::ofstream(folder.model() / "a/.y.tmp-1-1") << "what a killed run leaves";
  }
  const WorkingFolder folder(Target(), "plan", false);
  folder.RemoveUnfinished();
  EXPECT_EQ(folder.Finished("a/x", 5), Json("a/x"));
  EXPECT_EQ(folder.Finished("a/short", 6), std::nullopt);
  EXPECT_EQ(folder.Finished("a/none", 5), std::nullopt);
  EXPECT_TRUE(fs::exists(folder.model() / "a/x"));
  EXPECT_FALSE(fs::exists(folder.model() / "a/.y.tmp-1-1"));
}

TEST_F(Working, AnotherPlanIsNotMixedWithIt) {
  {
    const WorkingFolder folder(Target(), "plan", false);
    Finish(folder, "x", "12345");
  }
  EXPECT_THAT(Refused("other"), AllOf(HasSubstr("out.partial holds an unfinished conversion"),
                                      HasSubstr("--overwrite to start again")));
  EXPECT_TRUE(fs::exists(Partial() / "model/x"));
  const WorkingFolder folder(Target(), "other", true);
  EXPECT_EQ(folder.Finished("x", 5), std::nullopt);
  EXPECT_FALSE(fs::exists(folder.model() / "x"));
}

TEST_F(Working, OneAtATime) {
  const WorkingFolder folder(Target(), "plan", false);
  EXPECT_THAT(Refused("plan"), HasSubstr("another conversion is under way"));
}

TEST_F(Working, WhatIsThereIsKeptUnlessItMayGo) {
  folder_.Write("out/model_index.json", "{}");
  folder_.Write("out/old", "");
  EXPECT_THAT(Refused("plan"), AllOf(HasSubstr("it is there already"), HasSubstr("--overwrite")));
  {
    WorkingFolder folder(Target(), "plan", true);
    Finish(folder, "x", "1");
    EXPECT_TRUE(fs::exists(Target() / "old"));
    folder.MoveIntoPlace();
  }
  EXPECT_FALSE(fs::exists(Target() / "old"));
  EXPECT_TRUE(fs::exists(Target() / "x"));
  EXPECT_EQ(folder_.FileCount(), 1u);
}

TEST_F(Working, NothingButAModelIsReplaced) {
  folder_.Write("out/letters.txt", "dear");
  EXPECT_THAT(Refused("plan", true), HasSubstr("not a model"));
  EXPECT_TRUE(fs::exists(Target() / "letters.txt"));
  const TempFolder other;
  other.Write("out", "a file");
  EXPECT_THAT(MessageOf(ErrorKind::kCannotWrite, [&] { WorkingFolder(other.path() / "out", "plan", true); }),
              HasSubstr("not a folder"));
  fs::create_directory(folder_.path() / "real");
  fs::create_directory_symlink(folder_.path() / "real", folder_.path() / "link");
  EXPECT_THAT(
      MessageOf(ErrorKind::kCannotWrite, [&] { WorkingFolder(folder_.path() / "link", "plan", true); }),
      HasSubstr("not a folder"));
}

TEST_F(Working, SaysWhyItCannotBeMade) {
  EXPECT_THAT(
      MessageOf(ErrorKind::kCannotWrite, [&] { WorkingFolder(folder_.path() / "no/out", "plan", false); }),
      HasSubstr("no/out.partial"));
  EXPECT_THAT(MessageOf(ErrorKind::kCannotWrite, [] { WorkingFolder("", "plan", false); }),
              HasSubstr("empty"));
}

TEST(DiskSpace, IsCheckedBefore) {
  EXPECT_NO_THROW(CheckDiskSpace("/tmp", 1));
  EXPECT_THAT(MessageOf(ErrorKind::kCannotWrite, [] { CheckDiskSpace("/tmp", int64_t{1} << 60); }),
              AllOf(HasSubstr("1.153e+09 GB are needed"), HasSubstr("GB left")));
}

}  // namespace
}  // namespace qwen_image::convert
