#include "pull_progress.h"

#include <chrono>

#include "core/fail.h"
#include "files/text.h"
#include "hub/transfer_rate.h"
#include "print.h"
#include "progress.h"
#include "text_table.h"

namespace qwen_image::cli {
namespace {

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
    std::string text = fmt::format("{} of {} files, {} of {}", p.files, p.total_files,
                                   HumanBytes(static_cast<int64_t>(p.bytes)),
                                   HumanBytes(static_cast<int64_t>(p.total_bytes)));
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

}  // namespace

double RunDownload(bool quiet, const CancelFlag& cancel,
                   const std::function<void(const hub::PullHooks&)>& download) {
  PullPrinter printer(quiet);
  const auto start = std::chrono::steady_clock::now();
  hub::PullHooks hooks{.on_progress = [&](const hub::PullProgress& progress) { printer.Update(progress); },
                       .cancel = &cancel};
  hooks.on_retry = [&](const std::string& file, const std::string& problem, int next_try) {
    printer.Note(fmt::format("note: {}: {}; try {}", Printable(file), problem, next_try));
  };
  try {
    download(hooks);
  } catch (const Error& error) {
    printer.Clear();
    if (error.kind() != ErrorKind::kInterrupted) throw;
    Fail(ErrorKind::kInterrupted, "interrupted; the same command goes on from here");
  }
  printer.Clear();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Json PulledJson(const hub::RepoId& repo, const hub::PullResult& result) {
  Json files = Json::array();
  for (const hub::PulledFile& file : result.files)
    files.push_back({{"path", file.path}, {"bytes", file.size}, {"was_there", file.was_there}});
  return {{"repository", repo.FullName()},
          {"revision", repo.Revision()},
          {"commit", result.commit},
          {"folder", result.folder.string()},
          {"bytes", result.total_bytes},
          {"downloaded_bytes", result.downloaded_bytes},
          {"files", files}};
}

}  // namespace qwen_image::cli
