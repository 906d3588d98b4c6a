#include "catalogue/download.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "catalogue/local.h"
#include "catalogue/testing.h"
#include "hub/fake.h"

namespace qwen_image::catalogue {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Every repository of the small catalogue is the same one: it has all files.
class Downloads : public testing::Test {
 protected:
  Downloads() {
    setenv("no_proxy", "127.0.0.1", 1);
    hub_.copies = {"owner/encoder", "owner/parts", "owner/loras"};
    for (const Source& source : catalogue_.sources()) {
      for (const std::string& file : source.files) {
        if (file != hidden_) hub_.Add(file, std::string(1000, 'a') + file, true);
      }
    }
    request_.cache = cache_.path();
    request_.server.endpoint = hub_.endpoint();
    request_.retry.first_wait = std::chrono::milliseconds(0);
  }

  const std::string hidden_ = "large.gguf";  // is not there
  const Catalogue catalogue_ = Catalogue::Parse(SmallCatalogue(), "data");
  const Entry &large_ = catalogue_.entries()[0], &small_ = catalogue_.entries()[1];
  hub::FakeHub hub_{"owner/model"};
  const TempFolder cache_;
  hub::PullRequest request_;
};

TEST_F(Downloads, AllRepositories) {
  const DownloadPlan plan = PlanDownload(small_, request_, {});
  EXPECT_THAT(plan.repositories, SizeIs(4));
  EXPECT_EQ(plan.files, 4);
  EXPECT_GT(plan.bytes, 4'000);  // as listed, not as in the catalogue
  EXPECT_EQ(plan.missing_bytes, plan.bytes);

  hub::PullProgress last;
  const auto results = Download(plan, request_, {.on_progress = [&](const hub::PullProgress& progress) {
                                  EXPECT_GE(progress.bytes, last.bytes);
                                  EXPECT_EQ(progress.total_bytes, plan.bytes);
                                  EXPECT_EQ(progress.total_files, 4);
                                  last = progress;
                                }});
  EXPECT_THAT(results, SizeIs(4));
  EXPECT_EQ(last.bytes, plan.bytes);
  EXPECT_EQ(last.files, 4);
  EXPECT_TRUE(StatusOf(small_, cache_.path(), {}).here);
  EXPECT_EQ(PlanDownload(small_, request_, {}).missing_bytes, 0);
  EXPECT_FALSE(fs::exists(cache_.path() / "models--other--whole"));
}

TEST_F(Downloads, AFileThatIsNotInTheRepository) {
  const auto refusal = [&](const Entry& entry) {
    return MessageOf(ErrorKind::kBadInput, [&] { PlanDownload(entry, request_, {}); });
  };
  EXPECT_THAT(refusal(large_), AllOf(HasSubstr("fox:large: owner/model has no file \"large.gguf\""),
                                     HasSubstr("nearest: small.gguf"), HasSubstr("seen in: a listing"),
                                     HasSubstr("nothing was downloaded")));
  Json json = SmallCatalogue();
  json["files"]["large"].erase("seen");
  json["files"]["large"]["unseen"] = true;
  const Catalogue guessed = Catalogue::Parse(json, "data");
  EXPECT_THAT(refusal(guessed.entries()[0]), HasSubstr("it is a guess"));
  EXPECT_TRUE(fs::is_empty(cache_.path()));
  EXPECT_THAT(hub_.Requests("resolve"), SizeIs(0));
}

TEST_F(Downloads, WhatIsLeftAfterAnInterruption) {
  const DownloadPlan whole = PlanDownload(small_, request_, {});
  const fs::path blobs = hub::RepoFolder(cache_.path(), *hub::ParseRepoId("owner/model")) / "blobs";
  fs::create_directories(blobs);
  std::ofstream(blobs / (hub_.HashOf("small.gguf") + ".incomplete")) << std::string(300, 'x');
  const DownloadPlan rest = PlanDownload(small_, request_, {});
  EXPECT_EQ(rest.bytes, whole.bytes);
  EXPECT_EQ(rest.missing_bytes, whole.bytes - 300);
}

TEST_F(Downloads, SpaceForAllOfThem) {
  const DownloadPlan plan = PlanDownload(small_, request_, {});
  request_.free_space = [&](const fs::path&) { return plan.bytes - 1; };
  EXPECT_THAT(MessageOf(ErrorKind::kCannotWrite, [&] { Download(plan, request_, {}); }),
              HasSubstr("to be downloaded"));
  EXPECT_TRUE(fs::is_empty(cache_.path()));
}

}  // namespace
}  // namespace qwen_image::catalogue
