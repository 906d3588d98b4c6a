// Downloads all files of an entry, from as many repositories as it takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "catalogue/catalogue.h"
#include "hub/pull.h"

namespace qwen_image::catalogue {

// As the repositories list it.
struct DownloadPlan {
  struct Repository {
    hub::RepoId repo;
    std::vector<std::string> files;
    uint64_t bytes = 0;
  };
  std::vector<Repository> repositories;
  uint64_t bytes = 0, missing_bytes = 0;
  size_t files = 0;
};

// `common` says where to and from where: cache, server, files at a time, how often to try; its repo and
// filter are not looked at.
//
// Asks for the lists of files. Throws Error kBadInput that names the nearest ones, and says whether the name
// was a guess, if a repository does not have a file.
DownloadPlan PlanDownload(const Entry& entry, const hub::PullRequest& common, const hub::PullHooks& hooks);

// As hub::Pull, for each repository in turn; progress is of all of them together.
std::vector<hub::PullResult> Download(const DownloadPlan& plan, const hub::PullRequest& common,
                                      const hub::PullHooks& hooks);

}  // namespace qwen_image::catalogue
