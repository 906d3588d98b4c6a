// Which files of a repository are worth downloading: those that this program reads, or those asked for.
#pragma once

#include <string>
#include <vector>

#include "hub/client.h"

namespace qwen_image::hub {

struct PullFilter {
  std::vector<std::string> only;     // folders, e.g. "transformer"; empty: all
  std::vector<std::string> include;  // names with '*'; empty: what this program reads
};

// Throws Error kUsage if a filter matches nothing. It also throws if files look like alternatives (a dozen
// quantizations of one model) and `include` does not choose among them.
std::vector<RemoteFile> SelectFiles(const std::vector<RemoteFile>& files, const PullFilter& filter,
                                    const std::string& repo);

}  // namespace qwen_image::hub
