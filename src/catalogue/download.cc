#include "catalogue/download.h"

#include <algorithm>

#include "catalogue/local.h"
#include "catalogue/nearest.h"
#include "core/fail.h"
#include "files/text.h"
#include "hub/cache.h"

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

struct Sizes {
  uint64_t bytes = 0, missing = 0;
};

// What the list says of a source's files, and what of them the cache lacks.
Sizes SizesOf(const Entry& entry, const Source& source, const hub::Listing& listing,
              const std::filesystem::path& cache) {
  const std::filesystem::path repo_folder = hub::RepoFolder(cache, source.repo);
  Sizes sizes;
  for (const std::string& file : source.files) {
    const auto found = std::find_if(listing.files.begin(), listing.files.end(),
                                    [&](const hub::RemoteFile& remote) { return remote.path == file; });
    if (found == listing.files.end()) FailWithoutFile(entry, source, file, listing);
    sizes.bytes += found->size;
    sizes.missing += hub::MissingBytes(repo_folder, *found);
  }
  if (sizes.bytes == 0) sizes = {source.bytes, source.bytes};  // some mirrors list names only
  if (PathOf(source, cache)) sizes.missing = 0;
  return sizes;
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
    const Sizes sizes = SizesOf(entry, *source, listing->second, common.cache);
    repository.files.insert(repository.files.end(), source->files.begin(), source->files.end());
    repository.bytes += sizes.bytes;
    plan.bytes += sizes.bytes;
    plan.files += source->files.size();
    plan.missing_bytes += sizes.missing;
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
