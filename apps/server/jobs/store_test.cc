#include "server/jobs/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "files/png.h"
#include "files/testing.h"

namespace qwen_image::jobs {
namespace {

using testing::HasSubstr;

Job SampleJob() {
  Job job{.id = NewJobId(),
          .state = State::kFailed,
          .created = 1700000000123,
          .started = 1700000001000,
          .finished = 1700000002000,
          .settings = {.prompt = "caf\u00e9 \"quoted\"\n",
                       .negative_prompt = " ",
                       .width = 64,
                       .height = 48,
                       .steps = 20,
                       .cfg = 4.5,
                       .seed = 0xffffffffffffffff,
                       .strength = 0.25},
          .count = 3,
          .input_images = 2,
          .has_init_image = false,
          .has_mask = true,
          .images = {{64, 48, 7}},
          .notes = {"a note"},
          .error_kind = ErrorKind::kOutOfMemory,
          .error = "no memory"};
  return job;
}

TEST(Store, IdsAreRandomAndLong) {
  EXPECT_TRUE(IsJobId(NewJobId()));
  EXPECT_NE(NewJobId(), NewJobId());
  for (const char* text : {"", "0123456789abcdef0123456789abcde", "0123456789abcdef0123456789abcdef0",
                           "0123456789ABCDEF0123456789abcdef", "../456789abcdef0123456789abcdef"})
    EXPECT_FALSE(IsJobId(text)) << text;
}

TEST(Store, AJobComesBackAsItWas) {
  const Job job = SampleJob();
  const Job again = ParseStoredJob(StoredJobText(job), "x");
  EXPECT_EQ(StoredJobText(again), StoredJobText(job));
  EXPECT_EQ(again.settings.prompt, job.settings.prompt);
  EXPECT_EQ(again.settings.seed, job.settings.seed);
  EXPECT_EQ(again.settings.strength, job.settings.strength);
  EXPECT_EQ(again.error_kind, job.error_kind);
  EXPECT_EQ(again.images.size(), 1u);
}

TEST(Store, SigmasBackgroundsAndAlphaAreKept) {
  Job job = SampleJob();
  const std::string plain = StoredJobText(job);
  for (const char* name : {"sigmas", "background", "alpha"})
    EXPECT_THAT(plain, testing::Not(HasSubstr(name)));
  EXPECT_EQ(ParseStoredJob(plain, "x").images[0].channels, 3);
  job.settings.sigmas = {1, 0.978453};
  job.settings.background = "#0a141e";
  job.images.push_back({64, 48, 8, 4});
  const Job again = ParseStoredJob(StoredJobText(job), "x");
  EXPECT_EQ(again.settings.sigmas, job.settings.sigmas);
  EXPECT_EQ(again.settings.background, job.settings.background);
  EXPECT_EQ(again.images[0].channels, 3);
  EXPECT_EQ(again.images[1].channels, 4);
  std::string broken = StoredJobText(job);
  broken.replace(broken.find("0.978453"), 8, "\"0.9784\"");
  EXPECT_THROW(ParseStoredJob(broken, "x"), Error);
}

TEST(Store, SizesThatWereNotKnownYetStayUnknown) {
  Job job = SampleJob();
  job.settings.width.reset();
  std::string text = StoredJobText(job);
  EXPECT_EQ(ParseStoredJob(text, "x").settings.width, std::nullopt);
  const std::string unknown = "\"width\": null";
  text.replace(text.find(unknown), unknown.size(), "\"width\": 0");  // as version 0.1 wrote it
  EXPECT_EQ(ParseStoredJob(text, "x").settings.width, std::nullopt);
}

TEST(Store, PromptsWithBytesThatAreNoTextAreKept) {
  Job job = SampleJob();
  job.settings.prompt = "\xff";
  EXPECT_EQ(ParseStoredJob(StoredJobText(job), "x").settings.prompt, "\uFFFD");
}

TEST(Store, RecordsThatAreNoneAreRefused) {
  const std::string good = StoredJobText(SampleJob());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const std::string& text :
       {std::string(""), std::string("[]"), good.substr(0, good.size() / 2), with("\"failed\"", "\"flying\""),
        with("18446744073709551615", "-1"), with("\"count\": 3", "\"count\": 0"),
        with("\"count\": 3", "\"count\": 1000000000"), with("\"a note\"", "7"),
        with("\"width\": 64", "\"width\": 0"), with("\"steps\": 20", "\"steps\": \"many\"")})
    MessageOf(ErrorKind::kBadInput, [&] { ParseStoredJob(text, "x"); });
}

TEST(Store, ForeignAndBrokenFilesHideNothing) {
  const TempFolder folder;
  const Job job = SampleJob();
  {
    const Store store(folder.path() / "jobs");
    store.Write(job);
  }
  const std::string other = NewJobId(), broken = NewJobId(), lost = NewJobId();
  folder.Write("jobs/" + other + ".json", StoredJobText(job));  // the record of another
  folder.Write("jobs/" + broken + ".json", "{\"id\":");
  folder.Write("jobs/" + broken + "-0.png", "kept with its record");
  folder.Write("jobs/" + lost + "-0.png", "without a record");
  folder.Write("jobs/." + lost + ".json.tmp-1-2", "half");
  folder.Write("jobs/holiday.png", "somebody's");
  folder.Write("jobs/notes.json", "{}");
  std::filesystem::create_directory(folder.path() / "jobs" / (NewJobId() + ".json"));
  const std::string pipe = NewJobId() + ".json", link = NewJobId() + ".json";
  ASSERT_EQ(mkfifo((folder.path() / "jobs" / pipe).c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", folder.path() / "jobs" / link);

  const Store store(folder.path() / "jobs");
  const Store::Contents contents = store.Load();
  ASSERT_EQ(contents.jobs.size(), 1u);
  EXPECT_EQ(contents.jobs[0].id, job.id);
  EXPECT_EQ(contents.problems.size(), 2u) << testing::PrintToString(contents.problems);
  const auto there = [&](const std::string& name) {
    return std::filesystem::exists(folder.path() / "jobs" / name);
  };
  EXPECT_TRUE(there("holiday.png") && there("notes.json") && there(broken + ".json") &&
              there(broken + "-0.png"));
  EXPECT_FALSE(there(lost + "-0.png") || there("." + lost + ".json.tmp-1-2"));
}

TEST(Store, OldestFirst) {
  const TempFolder folder;
  const Store store(folder.path());
  Job late = SampleJob(), early = SampleJob();
  early.created -= 1;
  store.Write(late);
  store.Write(early);
  const auto contents = store.Load();
  ASSERT_EQ(contents.jobs.size(), 2u);
  EXPECT_EQ(contents.jobs[0].id, early.id);
}

TEST(Store, TwoServersDoNotShareAFolder) {
  const TempFolder folder;
  {
    const Store store(folder.path());
    EXPECT_THAT(MessageOf(ErrorKind::kCannotWrite, [&] { Store second(folder.path()); }),
                HasSubstr("another server"));
  }
  EXPECT_NO_THROW(Store again(folder.path()));
}

TEST(Store, NewFoldersAreTheirOwnersAlone) {
  const TempFolder folder;
  const Store store(folder.path() / "a/b");
  struct stat status;
  ASSERT_EQ(stat((folder.path() / "a/b").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST(Store, FilesAreTheirOwnersAloneInAnyFolder) {
  const TempFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  const Store store(folder.path());
  const Job job = SampleJob();
  const auto check = [&] {
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      EXPECT_EQ(entry.status().permissions(), std::filesystem::perms(0600)) << entry.path();
  };
  store.Write(job);
  store.WritePicture(job.id, 0, {1, 1, {1, 2, 3}}, {});
  EXPECT_EQ(folder.FileCount(), 3u);
  check();
  for (const char* ending : {".json", "-0.png"})  // as an older server left them
    std::filesystem::permissions(folder.path() / (job.id + ending), std::filesystem::perms(0644));
  store.Load();
  check();
}

TEST(Store, WhatCannotBeWrittenDoesNotTellTheFolder) {
  const TempFolder folder;
  const Store store(folder.path() / "jobs");
  std::filesystem::remove_all(folder.path() / "jobs");
  const std::string message = MessageOf(ErrorKind::kCannotWrite, [&] { store.Write(SampleJob()); });
  EXPECT_THAT(message, testing::AllOf(HasSubstr("<jobs-dir>"), HasSubstr("No such file"),
                                      testing::Not(HasSubstr(folder.path().string()))));
}

TEST(Store, AFolderThatCannotBeUsedIsRefused) {
  const TempFolder folder;
  folder.Write("file", "x");
  MessageOf(ErrorKind::kCannotWrite, [&] { Store store(folder.path() / "file"); });
  MessageOf(ErrorKind::kCannotWrite, [&] { Store store("/proc/jobs"); });  // not even root writes there
}

TEST(Store, PicturesGoWithTheirJob) {
  const TempFolder folder;
  const Store store(folder.path());
  const Job job = SampleJob();
  store.Write(job);
  store.WritePicture(job.id, 0, {1, 1, {1, 2, 3}}, {{"key", "value"}});
  ASSERT_TRUE(store.ReadPicture(job.id, 0));
  EXPECT_TRUE(store.ReadPicture(job.id, 0)->starts_with("\x89PNG"));
  EXPECT_FALSE(store.ReadPicture(job.id, 1));
  store.Remove(job.id, 3);
  EXPECT_FALSE(store.ReadPicture(job.id, 0));
  EXPECT_EQ(folder.FileCount(), 1u);  // the lock
}

}  // namespace
}  // namespace qwen_image::jobs
