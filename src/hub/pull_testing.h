// What the tests of pulling share: a fake hub, an empty cache, and requests that do not wait between tries.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "files/testing.h"
#include "hub/cache.h"
#include "hub/fake.h"
#include "hub/pull.h"

namespace qwen_image::hub {

constexpr const char* kWeights = "transformer/weights.safetensors";

// Bytes in which every place is different from its neighbours, so that a shift shows.
inline std::string SomeBytes(size_t count) {
  std::string bytes(count, '\0');
  uint32_t state = 1;
  for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

class PullTest : public testing::Test {
 protected:
  PullTest() {
    setenv("no_proxy", "127.0.0.1", 1);
    hub_.Add("model_index.json", R"({"_class_name":"QwenImagePipeline"})");
    hub_.Add("README.md", "not for this program");
    hub_.Add("transformer/config.json", "{}");
    hub_.Add(kWeights, weights_, true);
  }

  PullRequest Request() const {
    return {
        .repo = *ParseRepoId("owner/model"),
        .cache = cache_.path(),
        .server = {.endpoint = hub_.endpoint()},
        .retry = {.first_wait = std::chrono::milliseconds(0), .longest_wait = std::chrono::milliseconds(0)}};
  }
  PullResult PullAll(const PullHooks& hooks = {}) const { return Pull(Request(), hooks); }
  std::string Refusal(ErrorKind kind, const PullRequest& request) const {
    return MessageOf(kind, [&] { Pull(request, {}); });
  }

  std::filesystem::path Repo() const { return cache_.path() / "models--owner--model"; }
  std::filesystem::path Blob(const std::string& path) const { return Repo() / "blobs" / hub_.HashOf(path); }
  std::filesystem::path Incomplete(const std::string& path) const {
    return Blob(path).string() + ".incomplete";
  }
  std::string Pulled(const std::string& path) const {
    return ReadBytes(Repo() / "snapshots" / hub_.commit() / path);
  }
  std::vector<TestRequest> WeightRequests() const { return hub_.Requests("/blobs/"); }
  // The answer to the `number`th request (from 1) for the weights' contents is changed.
  void BreakWeights(int number, const std::function<void(const TestRequest&, TestResponse&)>& change) {
    hub_.fault = [=, seen = 0](const TestRequest& request, TestResponse& answer) mutable {
      if (request.path.starts_with("/blobs/") && ++seen == number) change(request, answer);
    };
  }

  const std::string weights_ = SomeBytes(3'000'001);
  const TempFolder cache_;
  FakeHub hub_;
};

}  // namespace qwen_image::hub
