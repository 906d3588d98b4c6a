#include "files/mmap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <utility>

#include "files/testing.h"

namespace qwen_image {
namespace {

using ::testing::HasSubstr;

std::string AsString(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFile, ShowsTheBytes) {
  const TempFolder folder;
  const MappedFile file(folder.Write("a", "hello"));
  EXPECT_EQ(AsString(file), "hello");
  file.ReleasePages();
  EXPECT_EQ(AsString(file), "hello");
}

TEST(MappedFile, AnEmptyFileIsEmpty) {
  const TempFolder folder;
  const MappedFile file(folder.Write("a", ""));
  EXPECT_EQ(file.bytes().size(), 0u);
  file.ReleasePages();
}

TEST(MappedFile, Moves) {
  const TempFolder folder;
  MappedFile a(folder.Write("a", "first"));
  MappedFile b(std::move(a));
  EXPECT_EQ(AsString(b), "first");
  b = MappedFile(folder.Write("b", "second"));
  EXPECT_EQ(AsString(b), "second");
  EXPECT_EQ(b.path().filename(), "b");
}

TEST(MappedFile, FollowsLinks) {  // the cache of Hugging Face consists of them
  const TempFolder folder;
  folder.Write("blob", "data");
  std::filesystem::create_symlink("blob", folder.path() / "link");
  EXPECT_EQ(AsString(MappedFile(folder.path() / "link")), "data");
}

TEST(MappedFile, RefusesWhatIsNoRegularFile) {
  const TempFolder folder;
  const auto message = [](const std::filesystem::path& path) {
    return MessageOf(ErrorKind::kBadInput, [&] { MappedFile file(path); });
  };
  EXPECT_THAT(message(folder.path() / "absent"), HasSubstr("absent: No such file"));
  EXPECT_THAT(message(folder.path()), HasSubstr("is a folder"));
  EXPECT_THAT(message("/dev/zero"), HasSubstr("/dev/zero is not a regular file"));
  ASSERT_EQ(mkfifo((folder.path() / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(message(folder.path() / "fifo"),
              HasSubstr("not a regular file"));  // and does not wait for a writer
}

}  // namespace
}  // namespace qwen_image
