#include "hub/pull.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

#include "core/fail.h"
#include "files/text.h"
#include "hub/cache.h"
#include "hub/incomplete_blob.h"

namespace qwen_image::hub {
namespace {

namespace fs = std::filesystem;

// Files with the same contents are one blob.
struct PlannedBlob {
  RemoteFile file;                 // one of them
  std::vector<std::string> paths;  // of all
  bool is_there = false;
  uint64_t old_bytes = 0;  // in the cache already
};

bool BlobIsThere(const fs::path& repo_folder, const RemoteFile& file) {
  std::error_code error;
  return fs::file_size(repo_folder / "blobs" / file.hash, error) == file.size && !error;
}

std::vector<PlannedBlob> PlanBlobs(const std::vector<RemoteFile>& files, const fs::path& repo_folder) {
  std::map<std::string, PlannedBlob> by_hash;
  for (const RemoteFile& file : files) {
    PlannedBlob& blob = by_hash[file.hash];
    if (!blob.paths.empty() && blob.file.size != file.size) {
      Fail(ErrorKind::kBadInput, "the list of files gives {} and {} the same hash but other sizes",
           Quoted(blob.file.path), Quoted(file.path));
    }
    blob.file = file;
    blob.paths.push_back(file.path);
  }
  std::vector<PlannedBlob> blobs;
  for (auto& [hash, blob] : by_hash) {
    blob.is_there = BlobIsThere(repo_folder, blob.file);
    blob.old_bytes = blob.file.size - MissingBytes(repo_folder, blob.file);
    blobs.push_back(std::move(blob));
  }
  // The largest first, so that none is left to the end alone.
  std::stable_sort(blobs.begin(), blobs.end(),
                   [](const PlannedBlob& a, const PlannedBlob& b) { return a.file.size > b.file.size; });
  return blobs;
}

void CheckSpace(const PullRequest& request, const fs::path& repo_folder, uint64_t needed) {
  // A few megabytes stay free for links and folders.
  constexpr uint64_t kReserve = uint64_t{16} << 20;
  const uint64_t free = request.free_space(repo_folder);
  if (needed == 0 || free >= needed + kReserve) return;
  const auto gigabytes = [](uint64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  Fail(ErrorKind::kCannotWrite,
       "{} needs {:.2f} GB more, but {} has only {:.2f} GB free; HF_HOME or --cache-dir chooses another disk",
       request.repo.ToString(), gigabytes(needed), request.cache.string(), gigabytes(free));
}

// Downloads blobs on several threads; the first failure stops them all.
class Downloader {
 public:
  Downloader(const PullRequest& request, const PullHooks& hooks, const fs::path& repo_folder,
             const std::string& commit, const std::vector<PlannedBlob>& blobs)
      : request_(request), hooks_(hooks), repo_folder_(repo_folder), commit_(commit), blobs_(blobs) {
    for (const PlannedBlob& blob : blobs) {
      progress_.total_files += blob.paths.size();
      progress_.total_bytes += blob.file.size;
      progress_.old_bytes += blob.old_bytes;
    }
    progress_.bytes = progress_.old_bytes;
  }

  uint64_t Run() {
    Report([](PullProgress&) {});
    const size_t workers =
        std::min(static_cast<size_t>(std::max(request_.parallel, 1)), std::max<size_t>(blobs_.size(), 1));
    std::vector<std::thread> threads;
    try {
      threads.reserve(workers);
      for (size_t i = 1; i < workers; ++i) threads.emplace_back([this] { Work(); });
    } catch (const std::system_error&) {  // no more threads to be had: fewer will do
    }
    Work();
    for (std::thread& thread : threads) thread.join();
    if (error_) std::rethrow_exception(error_);
    return downloaded_;
  }

 private:
  bool Stopped() const { return failed_ || (hooks_.cancel && hooks_.cancel->cancelled()); }
  void ThrowIfStopped() const {
    if (Stopped()) throw Error(ErrorKind::kInterrupted, "interrupted");
  }

  template <typename Change>
  void Report(const Change& change) {
    std::lock_guard lock(mutex_);
    change(progress_);
    if (hooks_.on_progress) hooks_.on_progress(progress_);
  }

  void Work() {
    try {
      Client client(request_.server, request_.retry,
                    {.stopped = [this] { return Stopped(); },
                     .on_retry =
                         [this](const std::string& what, const std::string& problem, int next) {
                           std::lock_guard lock(mutex_);
                           if (hooks_.on_retry) hooks_.on_retry(what, problem, next);
                         }});
      for (size_t i; (i = next_++) < blobs_.size();) {
        ThrowIfStopped();
        Fetch(client, blobs_[i]);
      }
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      failed_ = true;
    }
  }

  void Fetch(Client& client, const PlannedBlob& planned) {
    const RemoteFile& file = planned.file;
    if (!planned.is_there) {
      IncompleteBlob blob(repo_folder_, file.hash, file.size, [this] { ThrowIfStopped(); });
      if (BlobIsThere(repo_folder_, file)) {  // another program has finished it since the plan was made
        blob.Discard();
      } else {
        client.Download(request_.repo, commit_, file, blob, [this](int64_t change) {
          if (change > 0) downloaded_ += static_cast<uint64_t>(change);
          Report([&](PullProgress& p) { p.bytes += static_cast<uint64_t>(change); });
        });
      }
    }
    for (const std::string& path : planned.paths) LinkBlob(repo_folder_, commit_, path, file.hash);
    Report([&](PullProgress& p) { p.files += planned.paths.size(); });
  }

  const PullRequest& request_;
  const PullHooks& hooks_;
  const fs::path& repo_folder_;
  const std::string& commit_;
  const std::vector<PlannedBlob>& blobs_;
  std::atomic<size_t> next_ = 0;
  std::atomic<uint64_t> downloaded_ = 0;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;  // of what follows
  PullProgress progress_;
  std::exception_ptr error_;
};

}  // namespace

uint64_t MissingBytes(const fs::path& repo_folder, const RemoteFile& file) {
  if (file.hash.empty()) return file.size;  // the list did not say which blob it is
  return BlobIsThere(repo_folder, file) ? 0 : file.size - IncompleteSize(repo_folder, file.hash, file.size);
}

uint64_t FreeSpace(const fs::path& folder) {
  std::error_code error;
  fs::path there = fs::absolute(folder, error);
  while (!fs::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  struct statvfs status;
  if (statvfs(there.c_str(), &status) != 0) return UINT64_MAX;  // unknown: the writes will tell
  return uint64_t{status.f_bavail} * status.f_frsize;
}

PullResult Pull(const PullRequest& request, const PullHooks& hooks) {
  // 1. What there is, and which of it is wanted.
  Client client(
      request.server, request.retry,
      {.stopped = [&] { return hooks.cancel && hooks.cancel->cancelled(); }, .on_retry = hooks.on_retry});
  const Listing listing = client.List(request.repo);
  std::vector<RemoteFile> files = SelectFiles(listing.files, request.filter, request.repo.ToString());
  for (RemoteFile& file : files) {
    if (file.hash.empty()) client.Complete(request.repo, listing.commit, file);
  }

  // 2. What of it is missing, and whether the disk can take that.
  const fs::path repo_folder = RepoFolder(request.cache, request.repo);
  const std::vector<PlannedBlob> blobs = PlanBlobs(files, repo_folder);
  uint64_t needed = 0;
  for (const PlannedBlob& blob : blobs) needed += blob.file.size - blob.old_bytes;
  CheckSpace(request, repo_folder, needed);

  // 3. Download and link. The revision gets its commit last: it is the sign that all is there.
  PullResult result{.commit = listing.commit, .folder = repo_folder / "snapshots" / listing.commit};
  result.downloaded_bytes = Downloader(request, hooks, repo_folder, listing.commit, blobs).Run();
  WriteRef(repo_folder, request.repo.Revision(), listing.commit);

  for (const PlannedBlob& blob : blobs) {
    result.total_bytes += blob.file.size;
    for (const std::string& path : blob.paths) result.files.push_back({path, blob.file.size, blob.is_there});
  }
  std::sort(result.files.begin(), result.files.end(),
            [](const PulledFile& a, const PulledFile& b) { return a.path < b.path; });
  return result;
}

}  // namespace qwen_image::hub
