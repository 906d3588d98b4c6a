// Models by their short names (catalogue/catalogue.h): which one a name means, and getting it.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "catalogue/catalogue.h"
#include "catalogue/download.h"
#include "files/json.h"
#include "qwen_image/cancel.h"

namespace qwen_image::cli {

struct NamedModel {
  std::shared_ptr<const catalogue::Catalogue> catalogue;
  const catalogue::Entry* entry = nullptr;  // in it
};

// The entry that a name means on this machine, downloaded or not. What was chosen for a name without a tag is
// said on stderr.
NamedModel ChooseByName(const std::string& name, const std::filesystem::path& cache, bool quiet);

// The same among those that are downloaded. Throws Error kBadInput if none is.
NamedModel FindByName(const std::string& name, const std::filesystem::path& cache, bool quiet);

struct NamedDownload {
  catalogue::DownloadPlan plan;
  std::vector<hub::PullResult> results;
  double seconds = 0;
};

// Asks for the lists of files, then `agreed` (empty: nobody) with what they say, then downloads.
NamedDownload DownloadNamed(const catalogue::Entry& entry, const hub::PullRequest& request, bool quiet,
                            const CancelFlag& cancel,
                            const std::function<void(const catalogue::DownloadPlan&)>& agreed);
std::string DownloadText(const catalogue::Entry& entry, const NamedDownload& done);  // a line or two
Json DownloadJson(const catalogue::Entry& entry, const NamedDownload& done);

bool CanAsk();  // there is a terminal to ask on

// Asks the user there. Throws Error kInterrupted unless the answer is yes, and kUsage with
// `otherwise` if there is no terminal.
void NeedConsent(const std::string& question, const std::string& otherwise, const CancelFlag& cancel);

}  // namespace qwen_image::cli
