#include "catalogue/download.h"

#include <algorithm>

#include "catalogue/local.h"
#include "catalogue/nearest.h"
#include "core/fail.h"
#include "files/text.h"

namespace qwen_image::catalogue {
namespace {

[[noreturn]] void FailWithoutFile(const Entry& entry, const Source& source, const std::string& file,
                                  const hub::Listing& listing) {
  std::vector<std::string> there;
  for (const hub::RemoteFile& other : listing.files) there.push_back(other.path);
  std::vector<std::string> nearest = Nearest(file, there, 3);
  for (std::string& name : nearest) name = Printable(name, 120);
  Fail(ErrorKind::kBadInput, "{}: {} has no file {}{}. {}; nothing was downloaded", entry.name,
       source.repo.ToString(), Quoted(file),
       nearest.empty() ? "" : fmt::format("; nearest: {}", fmt::join(nearest, ", ")),
       source.seen.empty() ? "Nobody had seen the name that the catalogue gives it: it is a guess"
                           : fmt::format("The name was seen in: {}; it may have changed since", source.seen));
}

// What the list says of a source's files.
uint64_t ListedBytes(const Entry& entry, const Source& source, const hub::Listing& listing) {
  uint64_t bytes = 0;
  for (const std::string& file : source.files) {
    const auto found = std::find_if(listing.files.begin(), listing.files.end(),
                                    [&](const hub::RemoteFile& remote) { return remote.path == file; });
    if (found == listing.files.end()) FailWithoutFile(entry, source, file, listing);
    bytes += found->size;
  }
  return bytes > 0 ? bytes : source.bytes;  // some mirrors list names only
}

DownloadPlan::Repository& RepositoryOf(const Source& source, DownloadPlan& plan) {
  for (DownloadPlan::Repository& repository : plan.repositories) {
    if (repository.repo.ToString() == source.repo.ToString()) return repository;
  }
  return plan.repositories.emplace_back(DownloadPlan::Repository{.repo = source.repo});
}

}  // namespace

DownloadPlan PlanDownload(const Entry& entry, const hub::PullRequest& common, const hub::PullHooks& hooks) {
  DownloadPlan plan;
  hub::Client client(
      common.server, common.retry,
      {.stopped = [&] { return hooks.cancel && hooks.cancel->cancelled(); }, .on_retry = hooks.on_retry});
  std::vector<std::pair<std::string, hub::Listing>> listings;
  for (const Source* source : entry.Sources()) {
    DownloadPlan::Repository& repository = RepositoryOf(*source, plan);
    if (repository.files.empty()) listings.emplace_back(source->repo.ToString(), client.List(source->repo));
    const auto listing = std::find_if(listings.begin(), listings.end(), [&](const auto& known) {
      return known.first == source->repo.ToString();
    });
    const uint64_t bytes = ListedBytes(entry, *source, listing->second);
    repository.files.insert(repository.files.end(), source->files.begin(), source->files.end());
    repository.bytes += bytes;
    plan.bytes += bytes;
    plan.files += source->files.size();
    if (!PathOf(*source, common.cache)) plan.missing_bytes += bytes;
  }
  return plan;
}

std::vector<hub::PullResult> Download(const DownloadPlan& plan, const hub::PullRequest& common,
                                      const hub::PullHooks& hooks) {
  if (const uint64_t free = common.free_space(common.cache); free < plan.missing_bytes) {
    Fail(ErrorKind::kCannotWrite,
         "{} are to be downloaded, but {} has only {} free; HF_HOME or --cache-dir chooses another disk",
         Gigabytes(plan.missing_bytes), common.cache.string(), Gigabytes(free));
  }
  std::vector<hub::PullResult> results;
  hub::PullProgress before;  // of the repositories that are done
  for (const DownloadPlan::Repository& repository : plan.repositories) {
    hub::PullRequest request = common;
    request.repo = repository.repo;
    request.filter = {.only = {}, .include = repository.files};
    hub::PullHooks own = hooks;
    own.on_progress = [&](const hub::PullProgress& progress) {
      if (!hooks.on_progress) return;
      hooks.on_progress({.bytes = before.bytes + progress.bytes,
                         .total_bytes = plan.bytes,
                         .old_bytes = before.old_bytes + progress.old_bytes,
                         .files = before.files + progress.files,
                         .total_files = plan.files});
    };
    results.push_back(hub::Pull(request, own));
    before.bytes += results.back().total_bytes;
    before.old_bytes += results.back().total_bytes - results.back().downloaded_bytes;
    before.files += results.back().files.size();
  }
  return results;
}

}  // namespace qwen_image::catalogue
