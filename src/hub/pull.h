// Downloads a model from Hugging Face into the cache that the Python packages use too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "hub/client.h"
#include "hub/environment.h"
#include "hub/pull_selection.h"
#include "hub/repo_id.h"
#include "qwen_image/cancel.h"

namespace qwen_image::hub {

// What a download of the file would bring: nothing if its blob is there, the rest if an interrupted one left
// some.
uint64_t MissingBytes(const std::filesystem::path& repo_folder, const RemoteFile& file);
uint64_t FreeSpace(const std::filesystem::path& folder);  // of its disk; it need not exist yet

struct PullRequest {
  RepoId repo;
  PullFilter filter;
  std::filesystem::path cache;
  Server server;
  int parallel = 3;  // files at a time
  RetryPolicy retry;
  std::function<uint64_t(const std::filesystem::path&)> free_space = FreeSpace;
};

struct PullProgress {
  uint64_t bytes = 0, total_bytes = 0;  // of all chosen files; those that were there count as done
  uint64_t old_bytes = 0;               // of `bytes`: were there at the start
  size_t files = 0, total_files = 0;
};

// Called on any thread, but never two at a time.
struct PullHooks {
  std::function<void(const PullProgress&)> on_progress;
  std::function<void(const std::string& file, const std::string& problem, int next_try)> on_retry;
  const CancelFlag* cancel = nullptr;  // leaves what has arrived for the next pull, which resumes
};

struct PulledFile {
  std::string path;
  uint64_t size = 0;
  bool was_there = false;
};

struct PullResult {
  std::string commit;
  std::filesystem::path folder;  // snapshots/<commit>
  std::vector<PulledFile> files;
  uint64_t total_bytes = 0;
  uint64_t downloaded_bytes = 0;
};

// Throws Error: kUsage for a filter that cannot be meant, kBadInput if the server refuses, cannot be reached
// or sends something wrong, kCannotWrite (a full disk, …), kInterrupted.
PullResult Pull(const PullRequest& request, const PullHooks& hooks);

}  // namespace qwen_image::hub
