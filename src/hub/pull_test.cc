// Pulling from a server that behaves: what is asked for, and what the cache holds afterwards.
#include "hub/pull.h"

#include <fmt/format.h>

#include <memory>

#include "hub/pull_testing.h"

namespace qwen_image::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using HubPull = PullTest;

std::vector<std::string> PathsOf(const PullResult& result) {
  std::vector<std::string> paths;
  for (const PulledFile& file : result.files) paths.push_back(file.path);
  return paths;
}

TEST_F(HubPull, FillsTheCache) {
  const PullResult result = PullAll();
  EXPECT_EQ(result.commit, hub_.commit());
  EXPECT_EQ(result.folder, FindSnapshot(cache_.path(), *ParseRepoId("owner/model")));
  EXPECT_THAT(PathsOf(result), ElementsAre("model_index.json", "transformer/config.json", kWeights));
  EXPECT_EQ(Pulled(kWeights), weights_);
  EXPECT_EQ(Pulled("transformer/config.json"), "{}");
  EXPECT_EQ(fs::read_symlink(result.folder / kWeights), "../../../blobs/" + hub_.HashOf(kWeights));
  EXPECT_EQ(ReadBytes(Repo() / "refs/main"), hub_.commit());
  EXPECT_EQ(std::distance(fs::directory_iterator(Repo() / "blobs"), fs::directory_iterator()), 3);
  EXPECT_EQ(result.downloaded_bytes, result.total_bytes);
}

TEST_F(HubPull, ASecondPullAsksForTheListOnly) {
  PullAll();
  const size_t before = hub_.Requests("").size();
  const PullResult result = PullAll();
  EXPECT_EQ(hub_.Requests("").size(), before + 1);
  EXPECT_EQ(result.downloaded_bytes, 0u);
  EXPECT_TRUE(result.files.front().was_there);
}

TEST_F(HubPull, ABlobOfTheWrongSizeIsFetchedAgain) {
  PullAll();
  fs::resize_file(Blob(kWeights), 100);
  PullAll();
  EXPECT_EQ(Pulled(kWeights), weights_);
}

TEST_F(HubPull, EqualFilesAreOneBlob) {
  hub_.Add("vae/config.json", "{}");
  const PullResult result = PullAll();
  EXPECT_THAT(result.files, SizeIs(4));
  EXPECT_EQ(Pulled("vae/config.json"), "{}");
  EXPECT_EQ(hub_.Requests("config.json").size(), 1u);
}

TEST_F(HubPull, EmptyFilesAndOddNames) {
  hub_.Add("empty.json", "");
  hub_.Add("a b+#%é.json", "1");
  hub_.fault = [](const TestRequest& request, TestResponse& answer) {
    if (request.path.ends_with("/a%20b%2B%23%25%C3%A9.json")) answer = {.body = "1"};
  };
  PullAll();
  EXPECT_EQ(Pulled("empty.json"), "");
  EXPECT_TRUE(fs::exists(Repo() / "snapshots" / hub_.commit() / "empty.json"));
  EXPECT_EQ(Pulled("a b+#%é.json"), "1");
}

TEST_F(HubPull, Revisions) {
  hub_.revision = "refs%2Fpr%2F3";
  PullRequest request = Request();
  request.repo.revision = "refs/pr/3";
  Pull(request, {});
  EXPECT_EQ(ReadBytes(Repo() / "refs/refs/pr/3"), hub_.commit());
  EXPECT_FALSE(fs::exists(Repo() / "refs/main"));
  hub_.revision = hub_.commit();
  request.repo.revision = hub_.commit();
  Pull(request, {});
  EXPECT_FALSE(fs::exists(Repo() / "refs" / hub_.commit()));  // a commit needs no ref
}

TEST_F(HubPull, OnlyOneFolder) {
  hub_.Add("vae/config.json", "[]");
  PullRequest request = Request();
  request.filter.only = {"vae"};
  EXPECT_THAT(PathsOf(Pull(request, {})), ElementsAre("model_index.json", "vae/config.json"));
  EXPECT_THAT(WeightRequests(), IsEmpty());
}

TEST_F(HubPull, HeadersTellWhatTheListDoesNot) {
  hub_.lists_hashes = false;
  PullAll();
  EXPECT_EQ(Pulled(kWeights), weights_);
  EXPECT_EQ(fs::read_symlink(Repo() / "snapshots" / hub_.commit() / kWeights).filename(),
            hub_.HashOf(kWeights));
  EXPECT_EQ(Pulled("transformer/config.json"), "{}");
}

TEST_F(HubPull, TheTokenStaysWithItsServer) {
  hub_.required_token = "hf_secret";
  PullRequest request = Request();
  request.server.token = "hf_secret";
  Pull(request, {});
  ASSERT_THAT(WeightRequests(), SizeIs(1));
  EXPECT_FALSE(WeightRequests()[0].Has("authorization"));
  for (const TestRequest& made : hub_.Requests("/owner/model/"))
    EXPECT_EQ(made.headers.at("authorization"), "Bearer hf_secret");
}

TEST_F(HubPull, ARedirectOnTheSameServerKeepsTheToken) {
  hub_.required_token = "hf_secret";
  hub_.fault = [this](const TestRequest& request, TestResponse& answer) {
    if (request.path.find("/resolve/") != std::string::npos && request.path.ends_with("config.json"))
      answer = {.status = 307,
                .headers = {{"Location", "/api/resolve-cache/models/owner/model/config.json"}}};
    if (request.path.starts_with("/api/resolve-cache/")) {
      answer = {.status = request.Has("authorization") ? 200 : 401, .body = "{}"};
    }
  };
  PullRequest request = Request();
  request.server.token = "hf_secret";
  Pull(request, {});
  EXPECT_EQ(Pulled("transformer/config.json"), "{}");
}

TEST_F(HubPull, ProgressAddsUp) {
  std::vector<PullProgress> seen;
  const PullResult result = PullAll({.on_progress = [&](const PullProgress& p) { seen.push_back(p); }});
  EXPECT_EQ(seen.front().bytes, 0u);
  EXPECT_EQ(seen.front().total_bytes, result.total_bytes);
  EXPECT_EQ(seen.back().bytes, result.total_bytes);
  EXPECT_EQ(seen.back().files, 3u);
  EXPECT_EQ(seen.back().total_files, 3u);
  for (size_t i = 1; i < seen.size(); ++i) EXPECT_GE(seen[i].bytes, seen[i - 1].bytes);
}

TEST_F(HubPull, ManyFilesOnManyThreads) {
  for (int i = 0; i < 30; ++i) hub_.Add(fmt::format("many/{}.json", i), SomeBytes(1000 + i), i % 2 == 0);
  PullRequest request = Request();
  request.parallel = 8;
  EXPECT_THAT(Pull(request, {}).files, SizeIs(33));
  for (int i = 0; i < 30; ++i) EXPECT_EQ(Pulled(fmt::format("many/{}.json", i)), SomeBytes(1000 + i));
}

TEST_F(HubPull, ParallelMeansAtTheSameTime) {
  hub_.Add("vae/weights.safetensors", SomeBytes(1000), true);
  PullRequest request = Request();
  request.parallel = 2;
  hub_.fault = [gate = std::make_shared<Gate>(2)](const TestRequest& made, TestResponse& answer) {
    if (!made.path.starts_with("/blobs/")) return;
    answer.when_sent = [gate] { EXPECT_TRUE(gate->Pass()); };
    answer.says_length = false;  // so that an answer ends only when the other was asked for too
  };
  Pull(request, {});
  EXPECT_EQ(Pulled(kWeights), weights_);
}

TEST_F(HubPull, TheDiskIsAskedFirst) {
  PullRequest request = Request();
  fs::path asked;
  request.free_space = [&](const fs::path& folder) {
    asked = folder;
    return uint64_t{3'000'000};
  };
  EXPECT_THAT(Refusal(ErrorKind::kCannotWrite, request),
              AllOf(HasSubstr("0.00 GB free"), HasSubstr("HF_HOME"), HasSubstr(cache_.path().string())));
  EXPECT_EQ(asked, Repo());
  EXPECT_THAT(WeightRequests(), IsEmpty());
  EXPECT_EQ(cache_.FileCount(), 0u);
  EXPECT_GT(FreeSpace(cache_.path() / "not/there/yet"), 0u);
  // What is there already needs no space.
  PullAll();
  EXPECT_EQ(Pull(request, {}).downloaded_bytes, 0u);
}

}  // namespace
}  // namespace qwen_image::hub
