#include "hub/fake.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "files/digest.h"

namespace qwen_image::hub {
namespace {

std::string HashOfBytes(const std::string& bytes, Digest::Kind kind) {
  Digest digest(kind, bytes.size());
  digest.Add(bytes);
  return digest.Finish();
}

TestResponse NotFound(const std::string& code) {
  return {.status = 404, .headers = {{"X-Error-Code", code}}, .body = R"({"error":"not found"})"};
}

// The bytes, or those from the offset in "Range: bytes=OFFSET-".
TestResponse Contents(const TestRequest& request, const std::string& bytes) {
  const auto range = request.headers.find("range");
  if (range == request.headers.end()) return {.body = bytes};
  const size_t start = std::stoull(range->second.substr(range->second.find('=') + 1));
  if (start >= bytes.size()) return {.status = 416};
  return {
      .status = 206,
      .headers = {{"Content-Range", fmt::format("bytes {}-{}/{}", start, bytes.size() - 1, bytes.size())}},
      .body = bytes.substr(start)};
}

}  // namespace

FakeHub::FakeHub(std::string repo)
    : repo_(std::move(repo)),
      store_([this](const TestRequest& request) { return AnswerStore(request); }),
      hub_([this](const TestRequest& request) { return AnswerHub(request); }) {}

void FakeHub::Add(const std::string& path, const std::string& bytes, bool large) {
  files_[path] = {bytes, HashOfBytes(bytes, large ? Digest::Kind::kSha256 : Digest::Kind::kGitBlob), large};
}

std::vector<TestRequest> FakeHub::Requests(const std::string& part) const {
  std::vector<TestRequest> found;
  for (const TestServer* server : {&hub_, &store_}) {
    for (const TestRequest& request : server->requests()) {
      if (request.path.find(part) != std::string::npos) found.push_back(request);
    }
  }
  return found;
}

TestResponse FakeHub::Listing() const {
  nlohmann::json siblings = nlohmann::json::array();
  for (const auto& [path, file] : files_) {
    nlohmann::json sibling = {{"rfilename", path}};
    if (lists_hashes) {
      sibling["size"] = file.bytes.size();
      sibling["blobId"] = file.large ? std::string(40, 'e') : file.hash;  // a large file's is its pointer's
      if (file.large)
        sibling["lfs"] = {{"sha256", file.hash}, {"size", file.bytes.size()}, {"pointerSize", 135}};
    }
    siblings.push_back(sibling);
  }
  return {.headers = {{"Content-Type", "application/json"}},
          .body = nlohmann::json{{"id", repo_}, {"sha", commit_}, {"siblings", siblings}}.dump()};
}

TestResponse FakeHub::FileAnswer(const TestRequest& request, const File& file) const {
  TestResponse answer;
  if (file.large) {
    answer.status = 302;
    answer.headers = {{"Location", store_.url() + "/blobs/" + file.hash},
                      {"X-Linked-Etag", '"' + file.hash + '"'},
                      {"X-Linked-Size", std::to_string(file.bytes.size())},
                      {"ETag", "\"of the redirect\""}};
  } else {
    answer = Contents(request, file.bytes);
    answer.headers.emplace_back("ETag", "W/\"" + file.hash + '"');
  }
  answer.headers.emplace_back("X-Repo-Commit", commit_);
  return answer;
}

void FakeHub::Misbehave(const TestRequest& request, TestResponse& answer) {
  std::lock_guard lock(fault_mutex_);
  if (fault) fault(request, answer);
}

TestResponse FakeHub::AnswerRepo(const TestRequest& request, const std::string& repo) const {
  const std::string files = fmt::format("/{}/resolve/{}/", repo, commit_);
  if (request.path == fmt::format("/api/models/{}/revision/{}?blobs=true", repo, revision)) return Listing();
  if (request.path.starts_with("/api/models/" + repo)) return NotFound("RevisionNotFound");
  if (!request.path.starts_with(files)) return NotFound("RepoNotFound");
  const auto file = files_.find(request.path.substr(files.size()));
  return file == files_.end() ? NotFound("EntryNotFound") : FileAnswer(request, file->second);
}

TestResponse FakeHub::AnswerHub(const TestRequest& request) {
  TestResponse answer;
  const auto token = request.headers.find("authorization");
  if (!required_token.empty() &&
      (token == request.headers.end() || token->second != "Bearer " + required_token)) {
    answer = {.status = 401, .headers = {{"X-Error-Message", "Invalid username or password."}}};
  } else {
    std::string repo = repo_;
    for (const std::string& copy : copies) {
      if (request.path.find("/" + copy + "/") != std::string::npos) repo = copy;
    }
    answer = AnswerRepo(request, repo);
  }
  Misbehave(request, answer);
  return answer;
}

TestResponse FakeHub::AnswerStore(const TestRequest& request) {
  TestResponse answer = NotFound("EntryNotFound");
  for (const auto& [path, file] : files_) {
    if (request.path == "/blobs/" + file.hash) answer = Contents(request, file.bytes);
  }
  Misbehave(request, answer);
  return answer;
}

}  // namespace qwen_image::hub
