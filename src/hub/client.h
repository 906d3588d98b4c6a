// The two routes of Hugging Face that a download needs: the list of a repository's files, and their contents.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hub/environment.h"
#include "hub/http.h"
#include "hub/incomplete_blob.h"
#include "hub/repo_id.h"

namespace qwen_image::hub {

constexpr uint64_t kMaxHubFileSize = uint64_t{1} << 42;  // 4 TiB; no published file is larger

struct RemoteFile {
  std::string path;  // IsPlainPath
  uint64_t size = 0;
  std::string hash;  // of its contents, see Digest; empty: the list did not say, Complete() asks
};

struct Listing {
  std::string commit;
  std::vector<RemoteFile> files;
};

struct RetryPolicy {
  int tries = 5;  // in a row without progress
  std::chrono::milliseconds first_wait{1000};
  std::chrono::milliseconds longest_wait{30000};  // each wait is twice the one before
};

struct ClientHooks {
  std::function<bool()> stopped;  // true: end with Error kInterrupted
  // Told before each further try.
  std::function<void(const std::string& what, const std::string& problem, int next_try)> on_retry;
};

// For one thread at a time. All functions throw Error kBadInput if the server refuses or cannot be reached.
class Client {
 public:
  Client(Server server, RetryPolicy retry, ClientHooks hooks);

  // The files of `repo` at its revision.
  Listing List(const RepoId& repo);

  // Fills in the hash and size of a file from the headers of its address.
  void Complete(const RepoId& repo, const std::string& commit, RemoteFile& file);

  // Appends to `blob` until it is full and its hash is right, then commits it. `on_bytes` gets every change
  // of its size; a negative one when it begins again. A wrong hash leaves nothing behind.
  void Download(const RepoId& repo, const std::string& commit, const RemoteFile& file, IncompleteBlob& blob,
                const std::function<void(int64_t)>& on_bytes);

 private:
  struct Attempt {
    HttpResult result;
    bool progressed = false;
  };
  HttpHead Request(const std::string& what, const std::function<Attempt()>& attempt);
  std::string FileUrl(const RepoId& repo, const std::string& commit, const std::string& path) const;
  void Wait(std::chrono::milliseconds time) const;
  void FillBlob(const std::string& url, const RemoteFile& file, IncompleteBlob& blob,
                const std::function<void(int64_t)>& on_bytes);
  [[noreturn]] void Refuse(const std::string& what, const HttpResult& result) const;

  Server server_;
  RetryPolicy retry_;
  ClientHooks hooks_;
  HttpClient http_;
};

// The listing in `json`, the text of {endpoint}/api/models/{repo}/revision/{revision}?blobs=true. Throws
// Error kBadInput for one that could do harm: names that lead out of a folder, absurd sizes, odd hashes.
Listing ParseListing(std::string_view json, const std::string& where);

}  // namespace qwen_image::hub
