#include "files/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "core/fail.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string MessageFor(const fs::path& target) {
  const std::string message = MessageOf(ErrorKind::kCannotWrite, [&] { OutputFile file(target); });
  EXPECT_EQ(MessageOf(ErrorKind::kCannotWrite, [&] { CheckWritable(target); }), message);
  return message;
}

void WriteAll(const fs::path& target, const std::string& bytes) {
  OutputFile file(target);
  file.Write(bytes.data(), bytes.size());
  file.Commit();
}

TEST(OutputFile, AppearsOnCommitOnly) {
  const TempFolder folder;
  const fs::path target = folder.Write("out.png", "old");
  {
    OutputFile file(target);
    file.Write("new", 3);
    EXPECT_EQ(ReadBytes(target), "old");
    EXPECT_EQ(folder.FileCount(), 2u);
    file.Commit();
  }
  EXPECT_EQ(ReadBytes(target), "new");
  EXPECT_EQ(folder.FileCount(), 1u);
}

TEST(OutputFile, FilesOfTheProgramsOwnFoldersAreTheirOwnersAlone) {
  const TempFolder folder;
  const mode_t before = umask(022);
  for (const auto& [kind, mode] :
       {std::pair(OutputFile::Folder::kUsers, 0644u), std::pair(OutputFile::Folder::kOwn, 0600u)}) {
    OutputFile file(folder.path() / "out", kind);
    file.Commit();
    struct stat status;
    ASSERT_EQ(stat((folder.path() / "out").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, mode);
  }
  umask(before);
}

TEST(OutputFile, LeavesNothingWithoutCommit) {
  const TempFolder folder;
  {
    OutputFile file(folder.path() / "out.png");
    file.Write("new", 3);
  }
  EXPECT_EQ(folder.FileCount(), 0u);
}

TEST(OutputFile, TwoAtOnceDoNotDisturbEachOther) {
  const TempFolder folder;
  const fs::path target = folder.path() / "out.png";
  OutputFile a(target), b(target);
  a.Write("a", 1);
  b.Write("b", 1);
  a.Commit();
  EXPECT_EQ(ReadBytes(target), "a");
  b.Commit();
  EXPECT_EQ(ReadBytes(target), "b");
}

TEST(OutputFile, HasThePermissionsOfTheUmask) {
  const TempFolder folder;
  const mode_t before = umask(0022);
  WriteAll(folder.path() / "out", "x");
  umask(before);
  struct stat status;
  ASSERT_EQ(stat((folder.path() / "out").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0644u);
}

TEST(OutputFile, WorksInTheCurrentFolderAndWithLongNames) {
  const TempFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  WriteAll("out", "x");
  WriteAll(std::string(250, 'n'), "x");
  fs::current_path(before);
  EXPECT_EQ(ReadBytes(folder.path() / "out"), "x");
  EXPECT_EQ(folder.FileCount(), 2u);
}

TEST(OutputFile, WritesThroughALink) {
  const TempFolder folder;
  folder.Write("real/out", "old");
  fs::create_symlink("real/out", folder.path() / "link");
  WriteAll(folder.path() / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder.path() / "link"));
  EXPECT_EQ(ReadBytes(folder.path() / "real/out"), "new");
}

TEST(OutputFile, BadTargetsAreRefusedAtOnce) {
  const TempFolder folder;
  const fs::path& root = folder.path();
  EXPECT_THAT(MessageFor(root), HasSubstr("it is a folder"));
  EXPECT_THAT(MessageFor(root / ""), HasSubstr("it is a folder"));
  EXPECT_THAT(MessageFor(root / "absent/out.png"), AllOf(HasSubstr("absent"), HasSubstr("No such file")));
  EXPECT_THAT(MessageFor(folder.Write("file", "") / "out.png"), HasSubstr("/file"));
  EXPECT_THAT(MessageFor(root / std::string(300, 'n')), HasSubstr("File name too long"));
  EXPECT_THAT(MessageFor(""), HasSubstr("empty"));
  EXPECT_THAT(MessageFor("/proc/out.png"),
              HasSubstr("/proc/out.png"));  // a folder where even root may not write
  EXPECT_EQ(folder.FileCount(), 1u);
}

TEST(OutputFile, CheckWritableChangesNothing) {
  const TempFolder folder;
  const fs::path target = folder.Write("out.png", "old");
  CheckWritable(target);
  CheckWritable(folder.path() / "new.png");
  CheckWritable("/dev/null");
  EXPECT_EQ(ReadBytes(target), "old");
  EXPECT_EQ(folder.FileCount(), 1u);
}

TEST(OutputFile, AFullDiskIsAnError) {
  const TempFolder folder;
  fs::create_symlink("/dev/full", folder.path() / "out");
  EXPECT_THAT(
      MessageOf(ErrorKind::kCannotWrite, [&] { WriteAll(folder.path() / "out", "small: fails on close"); }),
      AllOf(HasSubstr("/out: No space left")));
  EXPECT_THAT(
      MessageOf(ErrorKind::kCannotWrite, [&] { WriteAll(folder.path() / "out", std::string(1 << 20, 'x')); }),
      AllOf(HasSubstr("/out: No space left")));
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST(OutputFile, AFailedWriteLeavesTheOldFileAndNothingElse) {
  const TempFolder folder;
  const fs::path target = folder.Write("out", "old");
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message =
      MessageOf(ErrorKind::kCannotWrite, [&] { WriteAll(target, std::string(1 << 20, 'x')); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(message, HasSubstr("File too large"));
  EXPECT_EQ(ReadBytes(target), "old");
  EXPECT_EQ(folder.FileCount(), 1u);
}

// Another process, which runs until the end of its life here.
class Process {
 public:
  Process() {
    if (pipe(pipe_) != 0) std::abort();
    id_ = fork();
    if (id_ != 0) return;
    close(pipe_[1]);
    char end;
    _exit(static_cast<int>(read(pipe_[0], &end, 1)));
  }
  ~Process() {
    close(pipe_[0]);
    close(pipe_[1]);
    waitpid(id_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  pid_t id() const { return id_; }

 private:
  int pipe_[2] = {};
  pid_t id_ = 0;
};

pid_t OneThatIsGone() { return Process().id(); }

TEST(OutputFile, RemovesWhatKilledProcessesLeft) {
  const TempFolder folder;
  const pid_t gone = OneThatIsGone();
  folder.Write(fmt::format(".k.png.tmp-{}-0", gone), "half");
  folder.Write(fmt::format(".k.png.tmp-{}-17", gone), "half");
  folder.Write(fmt::format(".k.png.tmp-{}-999999", getpid()), "of one with the same id, as in containers");
  WriteAll(folder.path() / "k.png", "whole");
  EXPECT_EQ(folder.FileCount(), 1u);
  EXPECT_EQ(ReadBytes(folder.path() / "k.png"), "whole");

  folder.Write(fmt::format(".k.png.tmp-{}-0", gone), "half");
  RemoveLeftovers(folder.path() / "k.png");
  EXPECT_EQ(folder.FileCount(), 1u);
}

TEST(OutputFile, LeavesWhatIsInUseAndWhatIsNotItsOwn) {
  const TempFolder folder;
  const Process alive;
  const pid_t gone = OneThatIsGone();
  const std::string others[] = {fmt::format(".k.png.tmp-{}-0", alive.id()),
                                fmt::format(".other.png.tmp-{}-0", gone),
                                fmt::format(".k.png.tmp-{}-0.tmp-{}-1", gone, gone),
                                fmt::format(".k.png.tmp-{}-", gone),
                                fmt::format(".k.png.tmp-{}", gone),
                                fmt::format(".k.png.tmp--{}-1", gone),
                                ".k.png.tmp-99999999999999999999-1",
                                ".k.png.tmp-x-1",
                                fmt::format("k.png.tmp-{}-0", gone)};
  for (const std::string& name : others) folder.Write(name, "mine");
  const fs::path link = folder.path() / fmt::format(".k.png.tmp-{}-1", gone),
                 pipe = folder.path() / fmt::format(".k.png.tmp-{}-2", gone),
                 below = folder.path() / fmt::format(".k.png.tmp-{}-3", gone);
  fs::create_symlink(folder.Write("precious", "bytes"), link);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  fs::create_directory(below);
  WriteAll(folder.path() / "k.png", "whole");
  for (const std::string& name : others) EXPECT_EQ(ReadBytes(folder.path() / name), "mine") << name;
  EXPECT_TRUE(fs::is_symlink(link) && fs::is_fifo(pipe) && fs::is_directory(below));
  EXPECT_EQ(ReadBytes(folder.path() / "precious"), "bytes");
}

TEST(OutputFile, ATargetThatBecomesAFolderIsAnError) {
  const TempFolder folder;
  {
    OutputFile file(folder.path() / "out");
    fs::create_directory(folder.path() / "out");
    EXPECT_THAT(MessageOf(ErrorKind::kCannotWrite, [&] { file.Commit(); }), HasSubstr("directory"));
  }
  EXPECT_EQ(folder.FileCount(), 1u);
}

}  // namespace
}  // namespace qwen_image
