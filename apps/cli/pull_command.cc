// qwen-image pull: downloads a model from Hugging Face.
#include <memory>

#include "catalogue/catalogue.h"
#include "command.h"
#include "core/fail.h"
#include "files/text.h"
#include "named_model.h"
#include "print.h"
#include "progress.h"
#include "pull_progress.h"
#include "text_table.h"

namespace qwen_image::cli {
namespace {

struct PullCommandOptions {
  std::string repo;
  std::string revision;
  std::vector<std::string> only, include;
  std::filesystem::path cache_folder;
  int parallel = 3;
  bool quiet = false;
  bool json = false;
};

std::string Bytes(uint64_t bytes) { return HumanBytes(static_cast<int64_t>(bytes)); }

hub::RepoId ParseRepo(const PullCommandOptions& o) {
  std::optional<hub::RepoId> repo = hub::ParseRepoId(o.repo);
  if (!repo) {
    Fail(ErrorKind::kUsage,
         "{} is neither a name that qwen-image list shows nor a repository; write OWNER/NAME, for example "
         "Qwen/Qwen-Image",
         Quoted(o.repo));
  }
  if (o.revision.empty()) return *repo;
  if (!repo->revision.empty() && repo->revision != o.revision)
    Fail(ErrorKind::kUsage, "the revision is given twice: {} and {}", Quoted(repo->revision),
         Quoted(o.revision));
  if (!hub::IsPlainPath(o.revision))
    Fail(ErrorKind::kUsage, "{} is not a branch, tag or commit", Quoted(o.revision));
  repo->revision = o.revision;
  return *repo;
}

// What to type next. A part of a model, or another cache than the usual one, is used by its folder.
std::string NextStep(const PullCommandOptions& o, const hub::RepoId& repo, const hub::PullResult& result) {
  const bool is_part = !o.only.empty() || !o.include.empty();
  if (is_part) return fmt::format("qwen-image inspect {}", result.folder.string());
  return fmt::format("qwen-image generate \"…\" --model {}",
                     o.cache_folder.empty() ? repo.ToString() : result.folder.string());
}

void PrintJson(const Json& json) {
  Print(stdout, "{}\n", json.dump(1, ' ', false, Json::error_handler_t::replace));
}

void PrintSummary(const PullCommandOptions& o, const hub::RepoId& repo, const hub::PullResult& result,
                  double seconds) {
  Print(stdout, "{} ({}, commit {}): {} file{}, {}; ", repo.FullName(), repo.Revision(),
        result.commit.substr(0, 10), result.files.size(), result.files.size() == 1 ? "" : "s",
        Bytes(result.total_bytes));
  if (result.downloaded_bytes == 0) {
    Print(stdout, "all were there\n");
  } else {
    Print(stdout, "{} downloaded in {}\n", Bytes(result.downloaded_bytes), HumanSeconds(seconds));
  }
  Print(stdout, "  in    {}\n  next  {}\n", result.folder.string(), NextStep(o, repo, result));
}

int PullRepository(const PullCommandOptions& o, hub::PullRequest request, const CancelFlag& cancel) {
  request.repo = ParseRepo(o);
  request.filter = {o.only, o.include};
  hub::PullResult result;
  const double seconds =
      RunDownload(o.quiet, cancel, [&](const hub::PullHooks& hooks) { result = hub::Pull(request, hooks); });
  if (o.json) {
    Json json = PulledJson(request.repo, result);
    json["seconds"] = seconds;
    PrintJson(json);
  } else if (!o.quiet) {
    PrintSummary(o, request.repo, result, seconds);
  }
  return 0;
}

int PullName(const PullCommandOptions& o, const hub::PullRequest& request, const CancelFlag& cancel) {
  if (!o.only.empty() || !o.include.empty() || !o.revision.empty())
    Fail(ErrorKind::kUsage, "--only, --include and --revision are for OWNER/NAME; {} names its files itself",
         o.repo);
  const NamedModel model = ChooseByName(o.repo, request.cache, o.quiet);
  const NamedDownload done = DownloadNamed(*model.entry, request, o.quiet, cancel, {});
  if (o.json) {
    PrintJson(DownloadJson(*model.entry, done));
  } else if (!o.quiet) {
    Print(stdout, "{}\n  in    {}\n  next  {}qwen-image run {} \"…\"\n", DownloadText(*model.entry, done),
          request.cache.string(),
          o.cache_folder.empty() ? "" : fmt::format("HF_HUB_CACHE={} ", request.cache.string()),
          model.entry->name);
  }
  return 0;
}

int Run(const PullCommandOptions& o, const CancelFlag& cancel) {
  hub::PullRequest request{.parallel = o.parallel};
  request.cache = o.cache_folder.empty() ? hub::CacheFolder() : o.cache_folder;
  if (catalogue::IsName(o.repo)) {
    request.server = hub::ServerFrom();
    return PullName(o, request, cancel);
  }
  ParseRepo(o);  // before the server is asked for
  request.server = hub::ServerFrom();
  return PullRepository(o, std::move(request), cancel);
}

OptionList OptionsOf(PullCommandOptions& o) {
  return {
      {.names = "repository",
       .target = &o.repo,
       .help = "A name that `qwen-image list` shows, or OWNER/NAME on Hugging Face, or OWNER/NAME@REVISION",
       .required = true},
      {.names = "--revision", .target = &o.revision, .help = "A branch, tag or commit (default: main)"},
      {.names = "--only",
       .target = &o.only,
       .help = "Only this folder of the model, for example transformer; may be repeated"},
      {.names = "--include",
       .target = &o.include,
       .help = "Files with these names ('*' matches any text) instead of all that qwen-image reads; may be "
               "repeated"},
      {.names = "--cache-dir",
       .target = &o.cache_folder,
       .help = "Another cache than $HF_HUB_CACHE, $HF_HOME/hub or ~/.cache/huggingface/hub"},
      {.names = "--parallel",
       .target = &o.parallel,
       .help = "Files at a time (default: 3)",
       .range = {{1, 32}}},
      {.names = "--json", .target = &o.json, .help = "Print one JSON object instead of the summary"},
      {.names = "-q,--quiet", .target = &o.quiet, .help = "Print errors only"},
  };
}

}  // namespace

Command PullCommand() {
  const auto o = std::make_shared<PullCommandOptions>();
  return {
      .name = "pull",
      .summary = "Download a model from Hugging Face",
      .options = OptionsOf(*o),
      .footer =
          "Examples:\n"
          "  qwen-image pull qwen-image-2.1                         what fits this machine, of all parts\n"
          "  qwen-image pull Qwen/Qwen-Image                        all of it, about 58 GB\n"
          "  qwen-image pull Qwen/Qwen-Image-2512 --only transformer\n"
          "  qwen-image pull city96/Qwen-Image-gguf --include '*Q4_K_M*'\n"
          "  HF_HOME=/data/huggingface qwen-image pull Qwen/Qwen-Image\n"
          "  qwen-image generate \"a cat\" --model Qwen/Qwen-Image     afterwards\n\n"
          "Typed again, a command that was interrupted goes on where it was. Every file's checksum is "
          "verified as it arrives; files that are there already are compared by their size.\n"
          "Environment: HF_TOKEN (private and gated models), HF_ENDPOINT (a mirror), HF_HOME, "
          "HF_HUB_CACHE.\n\n"
          "Exit codes: 0 all is there, 2 wrong usage, 3 the server refuses, cannot be reached or sends "
          "something\n"
          "wrong, 5 cannot write (disk full), 130 interrupted.",
      .run = [o](const Session& session) { return Run(*o, session.cancel); }};
}

}  // namespace qwen_image::cli
