// A download with its progress on stderr, as `pull` and `run` show it.
#pragma once

#include <functional>

#include "files/json.h"
#include "hub/pull.h"

namespace qwen_image::cli {

// Calls `download` with hooks that print, and returns the seconds that it took. Throws what it throws; one
// that was interrupted says how to go on.
double RunDownload(bool quiet, const CancelFlag& cancel,
                   const std::function<void(const hub::PullHooks&)>& download);

Json PulledJson(const hub::RepoId& repo, const hub::PullResult& result);

}  // namespace qwen_image::cli
