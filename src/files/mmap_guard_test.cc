#include "files/mmap_guard.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "files/mmap.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr size_t kPage = 4096;

size_t Sum(const MappedFile& file) {
  size_t sum = 0;
  for (const std::byte byte : file.bytes()) sum += std::to_integer<size_t>(byte);
  return sum;
}

std::string MessageOf(const MappedFile& file) {
  return qwen_image::MessageOf(ErrorKind::kBadInput, [&] { file.ThrowIfDamaged(); });
}

class TruncationGuard : public ::testing::Test {
 protected:
  TruncationGuard() { InstallTruncationGuard(); }

  fs::path Write(const std::string& name, size_t pages) {
    return folder_.Write(name, std::string(pages * kPage, '\1'));
  }

  TempFolder folder_;
};

TEST_F(TruncationGuard, LostPagesAreZerosAndTheFileIsNamed) {
  const fs::path path = Write("weights", 8);
  const MappedFile file(path);
  EXPECT_FALSE(file.damaged());
  fs::resize_file(path, 2 * kPage);
  EXPECT_EQ(Sum(file), 2 * kPage) << "what is left is there, the rest is zeros";
  EXPECT_THAT(MessageOf(file), HasSubstr("weights was changed or truncated while it was in use"));
  EXPECT_EQ(Sum(file), 2 * kPage);
}

TEST_F(TruncationGuard, StaysDamagedWhenTheFileHasGrownAgain) {
  const fs::path path = Write("weights", 4);
  struct stat before;
  ASSERT_EQ(stat(path.c_str(), &before), 0);
  const MappedFile file(path);
  fs::resize_file(path, 0);
  EXPECT_EQ(Sum(file), 0u);
  std::ofstream(path, std::ios::binary) << std::string(4 * kPage, '\1');
  const timespec times[] = {before.st_atim, before.st_mtim};  // nothing but the mark tells now
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  EXPECT_TRUE(file.damaged());
  EXPECT_FALSE(MappedFile(path).damaged()) << "a new mapping is a new beginning";
}

TEST_F(TruncationGuard, OthersAreNotBlamed) {
  const fs::path path = Write("cut", 4);
  const MappedFile before(Write("before", 4)), file(path), after(Write("after", 4));
  fs::resize_file(path, kPage);
  Sum(file);
  EXPECT_TRUE(file.damaged());
  EXPECT_FALSE(before.damaged());
  EXPECT_FALSE(after.damaged());
  EXPECT_EQ(Sum(before) + Sum(after), 8 * kPage);
}

TEST_F(TruncationGuard, MovesWithTheFile) {
  const fs::path path = Write("cut", 4);
  MappedFile first(path);
  MappedFile second(std::move(first));
  MappedFile third(Write("other", 1));
  third = std::move(second);
  fs::resize_file(path, kPage);
  Sum(third);
  EXPECT_TRUE(third.damaged());
}

TEST_F(TruncationGuard, ManyThreadsAndMappings) {
  constexpr int kFiles = 40;
  std::vector<std::unique_ptr<MappedFile>> files;
  for (int i = 0; i < kFiles; ++i) {
    files.push_back(std::make_unique<MappedFile>(Write(std::to_string(i), 16)));
    if (i % 3 == 0) files.back().reset();  // its entry is used again
  }
  std::erase(files, nullptr);
  for (const auto& file : files) fs::resize_file(file->path(), 3 * kPage);
  std::vector<std::thread> threads;
  std::vector<size_t> sums(4);
  threads.reserve(sums.size());
  for (size_t& sum : sums) {
    threads.emplace_back([&] {
      for (const auto& file : files) sum += Sum(*file);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const size_t sum : sums) EXPECT_EQ(sum, files.size() * 3 * kPage);
  for (const auto& file : files) EXPECT_TRUE(file->damaged());
}

TEST(MappedFileDamage, IsSeenWithoutTheGuard) {
  const TempFolder folder;
  const fs::path path = folder.Write("w", "some bytes");
  const MappedFile file(path);
  EXPECT_FALSE(file.damaged());
  fs::resize_file(path, 4);  // within a page: no signal, only zeros
  EXPECT_THAT(MessageOf(file), HasSubstr("/w was changed or truncated"));
}

TEST(MappedFileDamage, OverwrittenInPlace) {
  const TempFolder folder;
  const fs::path path = folder.Write("w", "old weights");
  const MappedFile file(path);
  folder.Write("w", "new weights");  // the same size
  const timespec times[] = {{0, UTIME_OMIT}, {1, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  EXPECT_TRUE(file.damaged());
}

TEST(MappedFileDamage, AReplacedFileStaysWhatItWas) {
  const TempFolder folder;
  const fs::path path = folder.Write("w", "old weights");
  const MappedFile file(path);
  fs::rename(folder.Write("new", "new"), path);
  EXPECT_FALSE(file.damaged());
  EXPECT_EQ(static_cast<char>(file.bytes()[0]), 'o');
  fs::remove(path);
  EXPECT_FALSE(file.damaged());
}

TEST(TruncationGuardDeathTest, OtherBusErrorsStillEndTheProcess) {
  const TempFolder folder;
  const fs::path path = folder.Write("w", std::string(2 * kPage, '\1'));
  EXPECT_DEATH(
      {
        signal(SIGBUS, SIG_DFL);  // not the sanitizer's
        InstallTruncationGuard();
        const int fd = open(path.c_str(), O_RDONLY);
        const auto* bytes =
            static_cast<const volatile char*>(mmap(nullptr, 2 * kPage, PROT_READ, MAP_PRIVATE, fd, 0));
        fs::resize_file(path, 0);
        const char byte = bytes[kPage];
        _exit(byte);
      },
      "");
}

TEST(TruncationGuardDeathTest, SignalsFromOutsideAreNotSwallowed) {
  EXPECT_EXIT(
      {
        signal(SIGBUS, SIG_DFL);
        InstallTruncationGuard();
        raise(SIGBUS);
        _exit(0);
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

TEST(TruncationGuardDeathTest, ThePreviousHandlerIsAsked) {
  EXPECT_EXIT(
      {
        signal(SIGBUS, [](int) { _exit(17); });
        InstallTruncationGuard();
        raise(SIGBUS);
        _exit(0);
      },
      ::testing::ExitedWithCode(17), "");
}

}  // namespace
}  // namespace qwen_image
