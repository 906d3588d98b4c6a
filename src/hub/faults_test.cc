// Pulling from servers, over lines and onto disks that misbehave.
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <set>

#include "hub/pull_testing.h"

namespace qwen_image::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

using HubFaults = PullTest;
constexpr size_t kHalf = 1'500'000;

TEST_F(HubFaults, ACutConnectionIsResumed) {
  BreakWeights(1, [](const TestRequest&, TestResponse& answer) { answer.cut_after = kHalf; });
  std::vector<std::string> retries;
  PullAll({.on_retry = [&](const std::string& file, const std::string& problem, int next_try) {
    retries.push_back(fmt::format("{} {} {}", file, next_try, problem));
  }});
  EXPECT_EQ(Pulled(kWeights), weights_);
  ASSERT_THAT(WeightRequests(), SizeIs(2));
  EXPECT_FALSE(WeightRequests()[0].Has("range"));
  EXPECT_EQ(WeightRequests()[1].headers.at("range"), fmt::format("bytes={}-", kHalf));
  EXPECT_THAT(retries, SizeIs(1));
  EXPECT_THAT(retries[0], HasSubstr(std::string(kWeights) + " 2 "));
  EXPECT_FALSE(fs::exists(Incomplete(kWeights)));
}

TEST_F(HubFaults, AnEndWithoutALengthIsACutToo) {
  BreakWeights(1, [](const TestRequest&, TestResponse& answer) {
    answer.says_length = false;
    answer.cut_after = kHalf;
  });
  PullAll();
  EXPECT_EQ(Pulled(kWeights), weights_);
  EXPECT_THAT(WeightRequests(), SizeIs(2));
}

TEST_F(HubFaults, GivesUpWithoutProgress) {
  hub_.fault = [](const TestRequest& request, TestResponse& answer) {
    if (request.path.starts_with("/blobs/")) answer.cut_after = 10;
  };
  EXPECT_THAT(Refusal(ErrorKind::kBadInput, Request()), AllOf(HasSubstr(kWeights), HasSubstr("bytes")));
  EXPECT_THAT(WeightRequests(), SizeIs(RetryPolicy().tries));
  EXPECT_EQ(fs::file_size(Incomplete(kWeights)), 10u * RetryPolicy().tries);  // for the next pull
  EXPECT_FALSE(fs::exists(Repo() / "refs/main"));
}

TEST_F(HubFaults, ProgressBuysMoreTries) {
  hub_.Add(kWeights, SomeBytes(9'000'000), true);
  hub_.fault = [](const TestRequest& request, TestResponse& answer) {
    if (request.path.starts_with("/blobs/")) answer.cut_after = 1'100'000;
  };
  PullAll();
  EXPECT_GT(WeightRequests().size(), static_cast<size_t>(RetryPolicy().tries));
  EXPECT_EQ(Pulled(kWeights), SomeBytes(9'000'000));
}

TEST_F(HubFaults, AServerThatIgnoresRangesSendsAllAgain) {
  hub_.fault = [this, seen = 0](const TestRequest& request, TestResponse& answer) mutable {
    if (!request.path.starts_with("/blobs/")) return;
    answer = {.body = weights_};
    if (++seen == 1) answer.cut_after = kHalf;
  };
  uint64_t last = 0;
  const PullResult result = PullAll({.on_progress = [&](const PullProgress& p) { last = p.bytes; }});
  EXPECT_EQ(Pulled(kWeights), weights_);
  EXPECT_TRUE(WeightRequests()[1].Has("range"));
  EXPECT_EQ(last, result.total_bytes);
}

TEST_F(HubFaults, AServerThatKnowsNoSuchRange) {
  cache_.Write("models--owner--model/blobs/" + hub_.HashOf(kWeights) + ".incomplete",
               weights_.substr(0, kHalf));
  BreakWeights(1, [](const TestRequest&, TestResponse& answer) { answer = {.status = 416}; });
  PullAll();
  EXPECT_EQ(Pulled(kWeights), weights_);
  ASSERT_THAT(WeightRequests(), SizeIs(2));
  EXPECT_FALSE(WeightRequests()[1].Has("range"));
}

TEST_F(HubFaults, AnotherPartThanAskedForIsRefused) {
  hub_.fault = [this, seen = 0](const TestRequest& request, TestResponse& answer) mutable {
    if (!request.path.starts_with("/blobs/")) return;
    if (++seen == 1) {
      answer.cut_after = kHalf;
    } else {
      answer = {.status = 206,
                .headers = {{"Content-Range", "bytes 7-99/3000001"}},
                .body = weights_.substr(7, 93)};
    }
  };
  EXPECT_THAT(Refusal(ErrorKind::kBadInput, Request()), HasSubstr("another part"));
}

TEST_F(HubFaults, AWrongHashIsNotKept) {
  BreakWeights(1, [](const TestRequest&, TestResponse& answer) { answer.body[5] ^= 1; });
  EXPECT_THAT(Refusal(ErrorKind::kBadInput, Request()),
              AllOf(HasSubstr(kWeights), HasSubstr("checksum " + hub_.HashOf(kWeights))));
  EXPECT_FALSE(fs::exists(Blob(kWeights)));
  EXPECT_FALSE(fs::exists(Incomplete(kWeights)));
  EXPECT_FALSE(fs::exists(fs::symlink_status(Repo() / "snapshots" / hub_.commit() / kWeights)));
  PullAll();
  EXPECT_EQ(Pulled(kWeights), weights_);
}

TEST_F(HubFaults, AWrongHashOfASmallFile) {
  hub_.fault = [](const TestRequest& request, TestResponse& answer) {
    if (request.path.ends_with("config.json")) answer.body = "[]";
  };
  EXPECT_THAT(Refusal(ErrorKind::kBadInput, Request()), HasSubstr("transformer/config.json: what"));
  EXPECT_FALSE(fs::exists(Blob("transformer/config.json")));
}

TEST_F(HubFaults, WrongBytesOfAnEarlierDownloadCostOnlyTime) {
  cache_.Write("models--owner--model/blobs/" + hub_.HashOf(kWeights) + ".incomplete", "not these bytes");
  const PullResult result = PullAll();
  EXPECT_EQ(Pulled(kWeights), weights_);
  ASSERT_THAT(WeightRequests(), SizeIs(2));
  EXPECT_EQ(WeightRequests()[0].headers.at("range"), "bytes=15-");
  EXPECT_FALSE(WeightRequests()[1].Has("range"));
}

TEST_F(HubFaults, TooMuchOfAnEarlierDownload) {
  cache_.Write("models--owner--model/blobs/" + hub_.HashOf(kWeights) + ".incomplete", weights_ + "more");
  PullAll();
  EXPECT_EQ(Pulled(kWeights), weights_);
}

// Others may be able to write into a shared cache, and a link of theirs could lead to any file of the user.
TEST_F(HubFaults, ALinkInPlaceOfAnEarlierDownloadIsNotFollowed) {
  const fs::path theirs = cache_.Write("mine.txt", "my own file");
  fs::create_directories(Incomplete(kWeights).parent_path());
  fs::create_symlink(theirs, Incomplete(kWeights));
  EXPECT_THAT(Refusal(ErrorKind::kCannotWrite, Request()), HasSubstr(".incomplete"));
  EXPECT_TRUE(ReadBytes(theirs) == "my own file");
}

TEST_F(HubFaults, MoreThanAnnouncedIsRefused) {
  BreakWeights(1, [](const TestRequest&, TestResponse& answer) { answer.body += "more"; });
  EXPECT_THAT(Refusal(ErrorKind::kBadInput, Request()), HasSubstr("more than the 3000001 bytes"));
  EXPECT_LE(fs::file_size(Incomplete(kWeights)), weights_.size());
  EXPECT_FALSE(fs::exists(Blob(kWeights)));
}

TEST_F(HubFaults, BusyServersAreAskedAgain) {
  for (const int status : {429, 500, 503}) {
    SCOPED_TRACE(status);
    const TempFolder cache;
    PullRequest request = Request();
    request.cache = cache.path();
    hub_.fault = [=, asked = std::set<std::string>()](const TestRequest& made, TestResponse& answer) mutable {
      if (asked.insert(made.path).second)
        answer = {.status = status, .headers = {{"Retry-After", "100"}}, .body = "busy"};
    };
    EXPECT_EQ(Pull(request, {}).commit, hub_.commit());
    EXPECT_EQ(ReadBytes(cache.path() / "models--owner--model/blobs" / hub_.HashOf(kWeights)), weights_);
  }
  hub_.fault = [](const TestRequest&, TestResponse& answer) { answer = {.status = 503}; };
  EXPECT_THAT(Refusal(ErrorKind::kBadInput, Request()), HasSubstr("status 503"));
}

TEST_F(HubFaults, NoAccess) {
  hub_.required_token = "hf_right";
  EXPECT_THAT(Refusal(ErrorKind::kBadInput, Request()),
              AllOf(HasSubstr("set HF_TOKEN"), HasSubstr("Invalid username"), HasSubstr("owner/model")));
  PullRequest request = Request();
  request.server.token = "hf_wrong";
  EXPECT_THAT(Refusal(ErrorKind::kBadInput, request),
              AllOf(HasSubstr("HF_TOKEN) is not valid"), Not(HasSubstr("hf_wrong"))));
  EXPECT_THAT(hub_.Requests(""), SizeIs(2));  // asking again would not help
  hub_.required_token = "";
  BreakWeights(1, [](const TestRequest&, TestResponse& answer) { answer = {.status = 403}; });
  EXPECT_THAT(Refusal(ErrorKind::kBadInput, request), HasSubstr("licence"));
}

TEST_F(HubFaults, NotThere) {
  PullRequest request = Request();
  request.repo.name = "other";
  EXPECT_THAT(Refusal(ErrorKind::kBadInput, request), HasSubstr("no such repository"));
  request = Request();
  request.repo.revision = "v2";
  EXPECT_THAT(Refusal(ErrorKind::kBadInput, request),
              AllOf(HasSubstr("owner/model@v2"), HasSubstr("no such revision")));
  BreakWeights(1, [](const TestRequest&, TestResponse& answer) { answer.status = 404; });
  EXPECT_THAT(Refusal(ErrorKind::kBadInput, Request()), HasSubstr(kWeights));
}

TEST_F(HubFaults, NobodyListens) {
  PullRequest request = Request();
  {
    const TestServer gone([](const TestRequest&) { return TestResponse(); });
    request.server.endpoint = gone.url();
  }
  EXPECT_THAT(Refusal(ErrorKind::kBadInput, request), HasSubstr(request.server.endpoint + " cannot be used"));
}

TEST_F(HubFaults, RedirectsThatLeadNowhere) {
  for (const std::string target : {"/owner/model/resolve/loop", "file:///etc/passwd", "ftp://127.0.0.1/x"}) {
    SCOPED_TRACE(target);
    hub_.fault = [&](const TestRequest&, TestResponse& answer) {
      answer = {.status = 302, .headers = {{"Location", target}}};
    };
    EXPECT_THAT(Refusal(ErrorKind::kBadInput, Request()), HasSubstr("cannot be used"));
    EXPECT_LT(hub_.Requests("").size(), 20u);
  }
}

TEST_F(HubFaults, ListsThatCouldDoHarm) {
  const std::string commit(40, 'a');
  const auto message = [&](const std::string& text) {
    return MessageOf(ErrorKind::kBadInput, [&] { ParseListing(text, "owner/model"); });
  };
  const auto with = [&](const std::string& sibling) {
    return message(R"({"sha":")" + commit + R"(","siblings":[)" + sibling + "]}");
  };
  for (const std::string name : {"../../../.bashrc", "/etc/passwd", "a/../../b", "", "a\\\\b", "a\\u0000b",
                                 "a\\u001b[2Jb", "a//b", ".", "a/", "\\n"}) {
    EXPECT_THAT(with(R"({"rfilename":")" + name + "\"}"),
                AllOf(HasSubstr("not a name for a file"), Not(HasSubstr("\x1b"))))
        << name;
  }
  EXPECT_THAT(with(R"({"rfilename":"a"},{"rfilename":"a"})"), HasSubstr("twice"));
  EXPECT_THAT(with(R"({"rfilename":7})"), HasSubstr("not a name"));
  EXPECT_THAT(with("7"), HasSubstr("not a JSON object"));
  EXPECT_THAT(with(R"({"rfilename":"a","size":-1})"), HasSubstr("size of \"a\""));
  EXPECT_THAT(with(R"({"rfilename":"a","size":1e30})"), HasSubstr("size of \"a\""));
  EXPECT_THAT(with(R"({"rfilename":"a","size":1,"blobId":"../../x"})"), HasSubstr("hash of \"a\""));
  EXPECT_THAT(with(R"({"rfilename":"a","lfs":{"size":1,"sha256":"abc"}})"), HasSubstr("hash of \"a\""));
  EXPECT_THAT(with(R"({"rfilename":"a","lfs":7})"), HasSubstr("lfs"));
  EXPECT_THAT(message(R"({"sha":"../x","siblings":[]})"), HasSubstr("commit"));
  EXPECT_THAT(message(R"({"sha":")" + commit + "\"}"), HasSubstr("siblings"));
  EXPECT_THAT(message("<html>"), HasSubstr("not valid JSON"));
}

TEST_F(HubFaults, AnEndlessListIsCutOff) {
  hub_.fault = [](const TestRequest&, TestResponse& answer) {
    answer = {.body = std::string(size_t{17} << 20, ' ')};
  };
  EXPECT_THAT(Refusal(ErrorKind::kBadInput, Request()), HasSubstr("more than 16777216 bytes"));
}

TEST_F(HubFaults, AFailureStopsTheOthers) {
  hub_.Add("vae/weights.safetensors", SomeBytes(1000), true);
  const std::string held = "/blobs/" + hub_.HashOf(kWeights);
  hub_.fault = [&](const TestRequest& request, TestResponse& answer) {
    if (!request.path.starts_with("/blobs/")) return;
    if (request.path == held) {
      answer.cut_after = kHalf;
      answer.hold = true;  // would never end by itself
    } else {
      answer.status = 404;
    }
  };
  EXPECT_THAT(Refusal(ErrorKind::kBadInput, Request()), HasSubstr("vae/weights.safetensors"));
}

TEST_F(HubFaults, CancelledThenResumed) {
  BreakWeights(1, [](const TestRequest&, TestResponse& answer) {
    answer.cut_after = kHalf;
    answer.hold = true;
  });
  CancelFlag cancel;
  const PullHooks hooks{.on_progress =
                            [&](const PullProgress& p) {
                              if (p.bytes > kHalf / 2) cancel.Cancel();
                            },
                        .cancel = &cancel};
  EXPECT_EQ(MessageOf(ErrorKind::kInterrupted, [&] { PullAll(hooks); }), "interrupted");
  const uint64_t left = fs::file_size(Incomplete(kWeights));
  EXPECT_GT(left, 0u);
  EXPECT_LE(left, kHalf);
  EXPECT_FALSE(fs::exists(Repo() / "refs/main"));
  EXPECT_THAT(
      MessageOf(ErrorKind::kBadInput, [&] { FindSnapshot(cache_.path(), *ParseRepoId("owner/model")); }),
      HasSubstr("not finished"));

  const PullResult result = PullAll();
  EXPECT_EQ(Pulled(kWeights), weights_);
  EXPECT_EQ(WeightRequests().back().headers.at("range"), fmt::format("bytes={}-", left));
  EXPECT_LT(result.downloaded_bytes, weights_.size());
}

TEST_F(HubFaults, CancelledWhileTheServerIsSilent) {
  CancelFlag cancel;
  hub_.fault = [&](const TestRequest& request, TestResponse& answer) {
    if (!request.path.starts_with("/blobs/")) return;
    answer.cut_after = 0;
    answer.hold = true;
    answer.when_sent = [&] { cancel.Cancel(); };
  };
  MessageOf(ErrorKind::kInterrupted, [&] { PullAll({.cancel = &cancel}); });
}

TEST_F(HubFaults, AFullDisk) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{kHalf, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = Refusal(ErrorKind::kCannotWrite, Request());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(message, AllOf(HasSubstr("cannot write"), HasSubstr(hub_.HashOf(kWeights))));
  EXPECT_FALSE(fs::exists(Blob(kWeights)));
  PullAll();  // once there is room
  EXPECT_EQ(Pulled(kWeights), weights_);
  EXPECT_EQ(WeightRequests().back().headers.at("range"), fmt::format("bytes={}-", kHalf));
}

TEST_F(HubFaults, AFolderThatCannotBeWritten) {
  PullRequest request = Request();
  request.cache = cache_.Write("file", "") / "cache";
  EXPECT_THAT(Refusal(ErrorKind::kCannotWrite, request), HasSubstr("cannot create the folder"));
}

TEST_F(HubFaults, TwoAtATimeDoNotMix) {
  const BlobLock lock(Repo(), hub_.HashOf(kWeights));
  EXPECT_THAT(Refusal(ErrorKind::kCannotWrite, Request()), HasSubstr("another program"));
  EXPECT_TRUE(fs::exists(cache_.path() / ".locks/models--owner--model" / (hub_.HashOf(kWeights) + ".lock")));
}

}  // namespace
}  // namespace qwen_image::hub
