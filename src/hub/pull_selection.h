// Which files of a repository are worth downloading: those that this program reads, or those asked for.
#pragma once

#include <string>
#include <vector>

#include "hub/hub_client.h"

namespace qwen_image {

struct PullFilter {
  std::vector<std::string> only;     // folders, e.g. "transformer"; empty: all
  std::vector<std::string> include;  // names with '*'; empty: what this program reads
};

// Throws Error kUsage if a filter matches nothing, and if files look like alternatives of which nobody wants
// all (a dozen quantizations of one model) and `include` does not choose.
std::vector<HubFile> SelectFiles(const std::vector<HubFile>& files, const PullFilter& filter,
                                 const std::string& repo);

}  // namespace qwen_image
