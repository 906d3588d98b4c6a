#include "hub/client.h"

#include <algorithm>
#include <charconv>
#include <thread>
#include <utility>

#include "core/fail.h"
#include "files/text.h"

namespace qwen_image::hub {
namespace {

constexpr size_t kMaxListingBytes = size_t{16} << 20;
// A try that brings this much resets the count of tries, since a long download over a bad line may be cut
// often. Less does not, or a server could keep a program busy with one byte at a time.
constexpr uint64_t kProgressBytes = uint64_t{1} << 20;

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The offset of the first byte of an answer: 0, or what "bytes 100-199/200" says.
std::optional<uint64_t> FirstByte(const HttpHead& head) {
  if (head.status != 206) return 0;
  constexpr std::string_view kUnit = "bytes ";
  const std::string range = head.Header("content-range");
  if (!range.starts_with(kUnit)) return std::nullopt;
  return ParseNumber(std::string_view(range).substr(kUnit.size(), range.find('-') - kUnit.size()));
}

// W/"abc" → abc
std::string HashFromTag(std::string tag) {
  if (tag.starts_with("W/")) tag.erase(0, 2);
  std::erase(tag, '"');
  return IsLowercaseHex(tag, kSha256Digits) || IsLowercaseHex(tag, kGitHashDigits) ? tag : "";
}

std::string Problem(const HttpResult& result) {
  return result.problem.empty() ? fmt::format("the server answers with status {}", result.head.status)
                                : result.problem;
}

}  // namespace

Client::Client(Server server, RetryPolicy retry, ClientHooks hooks)
    : server_(std::move(server)), retry_(retry), hooks_(std::move(hooks)), http_(hooks_.stopped) {}

void Client::Wait(std::chrono::milliseconds time) const {
  constexpr std::chrono::milliseconds kSlice{100};  // a Ctrl-C is heeded this soon
  for (; time.count() > 0; time -= kSlice) {
    if (hooks_.stopped()) throw Error(ErrorKind::kInterrupted, "interrupted");
    std::this_thread::sleep_for(std::min(time, kSlice));
  }
}

void Client::Refuse(const std::string& what, const HttpResult& result) const {
  const HttpHead& head = result.head;
  if (!result.problem.empty())
    Fail(ErrorKind::kBadInput, "{}: {} cannot be used: {}", what, server_.endpoint, result.problem);
  const std::string code = head.Header("x-error-code"), message = head.Header("x-error-message");
  const std::string said = message.empty() ? "" : fmt::format(" ({})", Printable(message, 300));
  // Hugging Face answers 401 also for repositories that do not exist, so as not to betray private ones.
  if (head.status == 401) {
    Fail(ErrorKind::kBadInput, "{}: {} refuses access{}: {}", what, server_.endpoint, said,
         server_.token.empty() ? "there is no such repository, or it is private or gated: set HF_TOKEN then"
                               : "the token (HF_TOKEN) is not valid, or there is no such repository");
  }
  if (head.status == 403 || code == "GatedRepo") {
    Fail(ErrorKind::kBadInput,
         "{}: {} refuses access{}: accept the model's licence on its page, and set HF_TOKEN to a token that "
         "may read it",
         what, server_.endpoint, said);
  }
  if (head.status == 404) {
    const char* missing = code == "RevisionNotFound" ? "no such revision"
                          : code == "EntryNotFound"  ? "no such file"
                                                     : "no such repository or revision";
    Fail(ErrorKind::kBadInput, "{}: {} has {}{}", what, server_.endpoint, missing, said);
  }
  Fail(ErrorKind::kBadInput, "{}: {} answers with status {}{}", what, server_.endpoint, head.status, said);
}

std::string Client::FileUrl(const RepoId& repo, const std::string& commit, const std::string& path) const {
  return fmt::format("{}/{}/resolve/{}/{}", server_.endpoint, repo.FullName(), commit,
                     UrlEncoded(path, true));
}

// Tries until the answer is a good one, and returns its head.
HttpHead Client::Request(const std::string& what, const std::function<Attempt()>& attempt) {
  std::chrono::milliseconds wait = retry_.first_wait;
  for (int tries = 1;; ++tries) {
    const Attempt made = attempt();
    const HttpResult& result = made.result;
    if (result.problem.empty() && result.head.status >= 200 && result.head.status < 400) return result.head;
    if (made.progressed) {
      tries = 1;
      wait = retry_.first_wait;
    }
    if (!result.temporary || tries >= retry_.tries) Refuse(what, result);
    if (hooks_.on_retry) hooks_.on_retry(what, Problem(result), tries + 1);
    Wait(std::min(retry_.longest_wait, std::max<std::chrono::milliseconds>(wait, result.retry_after)));
    wait *= 2;
  }
}

Listing Client::List(const RepoId& repo) {
  const std::string url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", server_.endpoint,
                                      repo.FullName(), UrlEncoded(repo.Revision(), false));
  std::string text;
  Request(repo.ToString(), [&] {
    text.clear();
    return Attempt{
        http_.Get({.url = url, .token = server_.token}, [&](const HttpHead&, std::string_view bytes) {
          if (bytes.size() > kMaxListingBytes - text.size()) {
            Fail(ErrorKind::kBadInput, "{}: the list of files has more than {} bytes", repo.ToString(),
                 kMaxListingBytes);
          }
          text += bytes;
        })};
  });
  return ParseListing(text, repo.ToString());
}

void Client::Complete(const RepoId& repo, const std::string& commit, RemoteFile& file) {
  const std::string url = FileUrl(repo, commit, file.path);
  const HttpHead head = Request(
      file.path, [&] { return Attempt{http_.Get({.url = url, .token = server_.token, .head = true}, {})}; });
  const std::string linked = head.Header("x-linked-etag"), linked_size = head.Header("x-linked-size");
  file.hash = HashFromTag(linked.empty() ? head.Header("etag") : linked);
  const auto size = ParseNumber(linked_size.empty() ? head.Header("content-length") : linked_size);
  if (file.hash.empty() || !size || *size > kMaxHubFileSize) {
    Fail(ErrorKind::kBadInput, "{}: {} does not say the size and hash of the file", Printable(file.path),
         server_.endpoint);
  }
  file.size = *size;
}

void Client::FillBlob(const std::string& url, const RemoteFile& file, IncompleteBlob& blob,
                      const std::function<void(int64_t)>& on_bytes) {
  const auto begin_again = [&] {
    on_bytes(-static_cast<int64_t>(blob.size()));
    blob.Restart();
  };
  Request(file.path, [&] {
    const uint64_t start = blob.size();
    bool first = true;
    const auto sink = [&](const HttpHead& head, std::string_view bytes) {
      if (std::exchange(first, false) && FirstByte(head) != start) {
        // All of it is an answer too; another part would put bytes in the wrong place.
        if (FirstByte(head) != 0u) {
          Fail(ErrorKind::kBadInput, "{}: the server sends another part of the file than was asked for",
               Printable(file.path));
        }
        begin_again();
      }
      if (bytes.size() > file.size - blob.size()) {
        Fail(ErrorKind::kBadInput, "{}: the server sends more than the {} bytes that it announced",
             Printable(file.path), file.size);
      }
      blob.Append(bytes);
      on_bytes(static_cast<int64_t>(bytes.size()));
    };
    Attempt attempt{http_.Get({.url = url, .token = server_.token, .offset = start}, sink)};
    HttpResult& result = attempt.result;
    if (result.head.status == 416 && start > 0) {  // what an earlier download left is of no use
      begin_again();
      result.temporary = true;
    } else if (result.problem.empty() && result.head.has_body() && !blob.full()) {
      result.problem = fmt::format("the connection ended after {} of {} bytes", blob.size(), file.size);
      result.temporary = true;
    }
    attempt.progressed = blob.size() >= start + kProgressBytes;
    return attempt;
  });
}

void Client::Download(const RepoId& repo, const std::string& commit, const RemoteFile& file,
                      IncompleteBlob& blob, const std::function<void(int64_t)>& on_bytes) {
  const std::string url = FileUrl(repo, commit, file.path);
  while (true) {
    if (!blob.full()) FillBlob(url, file, blob, on_bytes);
    if (blob.HashIsRight()) return blob.Commit();
    const bool old_bytes_may_be_wrong = blob.has_old_bytes();
    on_bytes(-static_cast<int64_t>(blob.size()));
    blob.Restart();
    if (old_bytes_may_be_wrong) continue;
    blob.Discard();
    Fail(ErrorKind::kBadInput,
         "{}: what {} sent does not have the announced checksum {}; it was thrown away. Try again later",
         Printable(file.path), server_.endpoint, file.hash);
  }
}

}  // namespace qwen_image::hub
