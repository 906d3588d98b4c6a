#include "named_model.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "catalogue/local.h"
#include "core/fail.h"
#include "files/text.h"
#include "print.h"
#include "progress.h"
#include "pull_progress.h"
#include "text_table.h"

namespace qwen_image::cli {
namespace {

NamedModel ChosenOf(std::shared_ptr<const catalogue::Catalogue> all,
                    const std::vector<const catalogue::Entry*>& entries, const std::string& name,
                    const std::filesystem::path& cache, bool quiet) {
  const catalogue::Choice choice = catalogue::Choose(entries, name, cache, catalogue::ThisMachine(cache));
  if (!quiet && !choice.why.empty()) Print(stderr, "{}\n", choice.why);
  return {std::move(all), choice.entry};
}

// A line from the terminal, without its end.
std::string ReadAnswer(const CancelFlag& cancel) {
  std::string answer;
  for (char c = 0; answer.size() < 100;) {
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    constexpr int kMilliseconds = 100;
    poll(&input, 1, kMilliseconds);  // a Ctrl-C just before a wait would be noticed at its end only
    cancel.ThrowIfCancelled();
    if (input.revents == 0) continue;
    if (read(STDIN_FILENO, &c, 1) != 1 || c == '\n') break;
    answer += c;
  }
  return answer;
}

}  // namespace

NamedModel ChooseByName(const std::string& name, const std::filesystem::path& cache, bool quiet) {
  auto all = std::make_shared<const catalogue::Catalogue>(catalogue::Catalogue::Load());
  const std::vector<const catalogue::Entry*> entries = all->Find(name);
  return ChosenOf(std::move(all), entries, name, cache, quiet);
}

NamedModel FindByName(const std::string& name, const std::filesystem::path& cache, bool quiet) {
  auto all = std::make_shared<const catalogue::Catalogue>(catalogue::Catalogue::Load());
  std::vector<const catalogue::Entry*> entries = all->Find(name);
  if (entries.size() > 1) {
    const bool any_here = std::any_of(entries.begin(), entries.end(), [&](const catalogue::Entry* entry) {
      return catalogue::StatusOf(*entry, cache, {}).here;
    });
    if (!any_here)
      Fail(ErrorKind::kBadInput,
           "nothing of {} is downloaded; qwen-image pull {} fetches what fits this machine, and "
           "qwen-image list shows the others",
           name, name);
  }
  return ChosenOf(std::move(all), entries, name, cache, quiet);
}

NamedDownload DownloadNamed(const catalogue::Entry& entry, const hub::PullRequest& request, bool quiet,
                            const CancelFlag& cancel,
                            const std::function<void(const catalogue::DownloadPlan&)>& agreed) {
  NamedDownload done;
  RunDownload(quiet, cancel, [&](const hub::PullHooks& hooks) {
    done.plan = catalogue::PlanDownload(entry, request, hooks);
  });
  if (agreed) agreed(done.plan);
  done.seconds = RunDownload(quiet, cancel, [&](const hub::PullHooks& hooks) {
    done.results = catalogue::Download(done.plan, request, hooks);
  });
  return done;
}

std::string DownloadText(const catalogue::Entry& entry, const NamedDownload& done) {
  uint64_t downloaded = 0;
  for (const hub::PullResult& result : done.results) downloaded += result.downloaded_bytes;
  const std::string how =
      downloaded == 0 ? std::string("all were there")
                      : fmt::format("{} downloaded in {}", HumanBytes(static_cast<int64_t>(downloaded)),
                                    HumanSeconds(done.seconds));
  return fmt::format("{}: {} {}, {}; {}\n  licence  {}", entry.name, done.plan.files,
                     done.plan.files == 1 ? "file" : "files",
                     HumanBytes(static_cast<int64_t>(done.plan.bytes)), how, entry.licence);
}

Json DownloadJson(const catalogue::Entry& entry, const NamedDownload& done) {
  Json json = {{"name", entry.name}, {"licence", entry.licence}, {"seconds", done.seconds}};
  uint64_t bytes = 0, downloaded = 0;
  for (size_t i = 0; i < done.results.size(); ++i) {
    json["repositories"].push_back(PulledJson(done.plan.repositories[i].repo, done.results[i]));
    bytes += done.results[i].total_bytes;
    downloaded += done.results[i].downloaded_bytes;
  }
  json["bytes"] = bytes;
  json["downloaded_bytes"] = downloaded;
  return json;
}

bool CanAsk() { return isatty(STDIN_FILENO) && isatty(STDERR_FILENO); }

void NeedConsent(const std::string& question, const std::string& otherwise, const CancelFlag& cancel) {
  if (!CanAsk()) Fail(ErrorKind::kUsage, "{}", otherwise);
  Print(stderr, "{} [y/N] ", question);
  const std::string answer = ReadAnswer(cancel);
  if (answer != "y" && answer != "Y" && answer != "yes" && answer != "Yes")
    Fail(ErrorKind::kInterrupted, "nothing was done");
}

}  // namespace qwen_image::cli
