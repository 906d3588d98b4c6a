// qwen-image pull: downloads a model from Hugging Face.
#include <chrono>
#include <memory>

#include "command.h"
#include "core/fail.h"
#include "files/json.h"
#include "files/text.h"
#include "hub/pull.h"
#include "hub/transfer_rate.h"
#include "print.h"
#include "progress.h"
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

// "3 of 27 files, 3.21 GB of 57.7 GB, 24.1 MB/s, 38 min 05 s left" on stderr: redrawn on a terminal, a line
// now and then elsewhere.
class PullPrinter {
 public:
  explicit PullPrinter(bool quiet) : style_(ProgressPrinter::StyleFor(quiet)) {}
  ~PullPrinter() { Clear(); }

  void Update(const hub::PullProgress& progress) {
    using std::chrono::milliseconds;
    const auto now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - start_).count();
    rate_.Update(seconds, progress.bytes);
    const bool bar = style_ == ProgressPrinter::Style::kBar;
    if (style_ == ProgressPrinter::Style::kSilent || progress.bytes == progress.total_bytes) return;
    if (shown_ && now - last_ < (bar ? milliseconds(200) : milliseconds(10000))) return;
    last_ = now;
    shown_ = true;
    Print(stderr, "{}{}{}", bar ? "\r\x1b[2K" : "", Describe(progress), bar ? "" : "\n");
  }

  void Note(const std::string& text) {
    if (style_ == ProgressPrinter::Style::kSilent) return;
    Clear();
    Print(stderr, "{}\n", text);
  }

  void Clear() {
    if (shown_ && style_ == ProgressPrinter::Style::kBar) Print(stderr, "\r\x1b[2K");
    shown_ = false;
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::string Describe(const hub::PullProgress& p) const {
    std::string text =
        fmt::format("{} of {} files, {} of {}", p.files, p.total_files, Bytes(p.bytes), Bytes(p.total_bytes));
    if (const double rate = rate_.BytesPerSecond(); rate > 0) {
      text += fmt::format(", {}/s, {} left", HumanBytes(static_cast<int64_t>(rate)),
                          HumanSeconds(static_cast<double>(p.total_bytes - p.bytes) / rate));
    }
    return text;
  }

  ProgressPrinter::Style style_;
  Clock::time_point start_ = Clock::now(), last_;
  hub::TransferRate rate_;
  bool shown_ = false;
};

hub::RepoId ParseRepo(const PullCommandOptions& o) {
  std::optional<hub::RepoId> repo = hub::ParseRepoId(o.repo);
  if (!repo) {
    Fail(ErrorKind::kUsage,
         "{} is not the name of a repository; write OWNER/NAME, for example Qwen/Qwen-Image", Quoted(o.repo));
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

void PrintJson(const hub::RepoId& repo, const hub::PullResult& result, double seconds) {
  Json files = Json::array();
  for (const hub::PulledFile& file : result.files)
    files.push_back({{"path", file.path}, {"bytes", file.size}, {"was_there", file.was_there}});
  const Json json = {{"repository", repo.FullName()},
                     {"revision", repo.Revision()},
                     {"commit", result.commit},
                     {"folder", result.folder.string()},
                     {"bytes", result.total_bytes},
                     {"downloaded_bytes", result.downloaded_bytes},
                     {"seconds", seconds},
                     {"files", files}};
  Print(stdout, "{}\n", json.dump(1, ' ', false, Json::error_handler_t::replace));
}

int Run(const PullCommandOptions& o, const CancelFlag& cancel) {
  hub::PullRequest request{.repo = ParseRepo(o), .filter = {o.only, o.include}, .parallel = o.parallel};
  request.cache = o.cache_folder.empty() ? hub::CacheFolder() : o.cache_folder;
  request.server = hub::ServerFrom();
  PullPrinter printer(o.quiet);
  const auto start = std::chrono::steady_clock::now();
  hub::PullHooks hooks{.on_progress = [&](const hub::PullProgress& progress) { printer.Update(progress); },
                       .cancel = &cancel};
  hooks.on_retry = [&](const std::string& file, const std::string& problem, int next_try) {
    printer.Note(fmt::format("note: {}: {}; try {}", Printable(file), problem, next_try));
  };
  hub::PullResult result;
  try {
    result = hub::Pull(request, hooks);
  } catch (const Error& error) {
    printer.Clear();
    if (error.kind() != ErrorKind::kInterrupted) throw;
    Fail(ErrorKind::kInterrupted, "interrupted; the same command goes on from here");
  }
  printer.Clear();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (o.json) {
    PrintJson(request.repo, result, seconds);
  } else if (!o.quiet) {
    PrintSummary(o, request.repo, result, seconds);
  }
  return 0;
}

OptionList OptionsOf(PullCommandOptions& o) {
  return {
      {.names = "repository",
       .target = &o.repo,
       .help = "OWNER/NAME on Hugging Face, or OWNER/NAME@REVISION",
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
  return {.name = "pull",
          .summary = "Download a model from Hugging Face",
          .options = OptionsOf(*o),
          .footer =
              "Examples:\n"
              "  qwen-image pull Qwen/Qwen-Image                        all of it, about 58 GB\n"
              "  qwen-image pull Qwen/Qwen-Image-2512 --only transformer\n"
              "  qwen-image pull city96/Qwen-Image-gguf --include '*Q4_K_M*'\n"
              "  HF_HOME=/data/huggingface qwen-image pull Qwen/Qwen-Image\n"
              "  qwen-image generate \"a cat\" --model Qwen/Qwen-Image     afterwards\n\n"
              "Typed again, a command that was interrupted goes on where it was. Every file's checksum is "
              "verified.\n"
              "Environment: HF_TOKEN (private and gated models), HF_ENDPOINT (a mirror), HF_HOME, "
              "HF_HUB_CACHE.\n\n"
              "Exit codes: 0 all is there, 2 wrong usage, 3 the server refuses, cannot be reached or sends "
              "something\n"
              "wrong, 5 cannot write (disk full), 130 interrupted.",
          .run = [o](const Session& session) { return Run(*o, session.cancel); }};
}

}  // namespace qwen_image::cli
