#include "inspect_command.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <limits>

#include "core/fail.h"
#include "core/threads.h"
#include "inspect_report.h"
#include "print.h"
#include "progress.h"
#include "weights/inspect/inspect.h"

namespace qwen_image {
namespace {

// Says on stderr how far a long reading is; a short one stays silent.
class ReadingProgress {
 public:
  explicit ReadingProgress(bool quiet) : style_(ProgressPrinter::StyleFor(quiet)) {}
  ~ReadingProgress() {
    if (shown_ && style_ == ProgressPrinter::Style::kBar) Print(stderr, "\r\x1b[2K");
  }

  void Update(int64_t done, int64_t total) {
    constexpr auto kPatience = std::chrono::seconds(2);
    const bool bar = style_ == ProgressPrinter::Style::kBar;
    const auto interval = bar ? std::chrono::milliseconds(200) : std::chrono::seconds(10);
    const auto now = Clock::now();
    if (style_ == ProgressPrinter::Style::kSilent || now - start_ < kPatience || now - last_ < interval)
      return;
    last_ = now;
    shown_ = true;
    Print(stderr, "{}reading, {:.0f} %{}", bar ? "\r\x1b[2K" : "",
          100 * static_cast<double>(done) / static_cast<double>(std::max<int64_t>(total, 1)),
          bar ? "" : "\n");
  }

 private:
  using Clock = std::chrono::steady_clock;
  ProgressPrinter::Style style_;
  Clock::time_point start_ = Clock::now(), last_;
  bool shown_ = false;
};

WeightOrder OrderOf(const std::string& text, bool two) {
  if (text.empty()) return two ? WeightOrder::kError : WeightOrder::kName;
  if (text == "bytes") return WeightOrder::kBytes;
  if (text == "std") return WeightOrder::kStd;
  if (text == "max") return WeightOrder::kMax;
  if (text == "zeros") return WeightOrder::kZeros;
  if (text == "error") return WeightOrder::kError;
  return WeightOrder::kName;
}

void CheckOptions(const InspectCommandOptions& o) {
  const bool two = !o.other.empty();
  if (!two && o.sort == "error") Fail(ErrorKind::kUsage, "--sort error needs two paths to compare");
  if (two && (o.sort == "std" || o.sort == "zeros")) {
    Fail(ErrorKind::kUsage, "--sort {} is for one path; a difference is sorted by name, bytes, max or error",
         o.sort);
  }
  if (!two && o.tolerance > 0) Fail(ErrorKind::kUsage, "--tolerance needs two paths to compare");
  if (two && !o.statistics)
    Fail(ErrorKind::kUsage, "two paths are compared by their values; --no-stats has no meaning");
  if (two && o.verify) Fail(ErrorKind::kUsage, "--verify is for one path");
  if (o.verify && !o.statistics)
    Fail(ErrorKind::kUsage, "--verify reads all values, --no-stats none: give one of them");
  if (!o.statistics && (o.sort == "std" || o.sort == "max" || o.sort == "zeros")) {
    Fail(ErrorKind::kUsage, "--sort {} needs the statistics that --no-stats leaves out", o.sort);
  }
}

std::string JsonText(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";  // names of files may be no UTF-8
}

}  // namespace

void AddInspectOptions(CLI::App& command, InspectCommandOptions& o) {
  command.add_option("path", o.path, "A safetensors file, a folder with weights, or a whole model")
      ->required();
  command.add_option("other", o.other, "Compare with this one, tensor by tensor");
  command
      .add_option("--filter", o.filters,
                  "Only tensors with these names ('*' matches any text); may be repeated")
      ->allow_extra_args(false);
  command
      .add_option("--sort", o.sort,
                  "A flat list, sorted by name, bytes, std, max or zeros; with two paths also error")
      ->check(CLI::IsMember({"name", "bytes", "std", "max", "zeros", "error"}));
  command.add_option("--top", o.top, "At most N rows of a table")
      ->check(CLI::Range(size_t{1}, size_t{100000000}));
  command.add_flag("--full", o.full, "Every key instead of folded blocks, every finding");
  command.add_flag("--stats,!--no-stats", o.statistics,
                   "--no-stats: headers only, at once; no value is read");
  command.add_flag("--verify", o.verify,
                   "Read everything twice and compare (without it, 256 MB spread over the files)");
  command
      .add_option("--tolerance", o.tolerance,
                  "With two paths: relative errors ‖B − A‖ / ‖A‖ of a tensor up to this count as equal")
      ->check(CLI::Range(0.0, std::numeric_limits<double>::max()));
  command.add_option("-t,--threads", o.threads, "Threads (default: all processors)")
      ->check(CLI::Range(1, kMaxThreads));
  command.add_flag("--json", o.json, "Print one JSON object");
  command.add_flag("-q,--quiet", o.quiet, "Print totals and findings only, no table and no progress");
  command.footer(
      "Examples:\n"
      "  qwen-image inspect models/tiny                             the whole model, blocks folded\n"
      "  qwen-image inspect models/tiny/vae --full                  every key\n"
      "  qwen-image inspect models/tiny --sort std --top 10         the widest spreads\n"
      "  qwen-image inspect models/tiny --filter '*.attn.*bias'     some tensors\n"
      "  qwen-image inspect models/tiny --no-stats --json           names, shapes and types for a tool\n"
      "  qwen-image inspect bf16-model 4bit-model --tolerance 0.1   float against quantized\n\n"
      "Exit codes: 0 fine (warnings and notes are), 1 surely broken (NaN, missing scales, blocks, shards) or "
      "the\n"
      "two differ, 2 wrong usage, 3 nothing can be read.");
}

int RunInspect(const InspectCommandOptions& o, const CancelFlag& cancel) {
  CheckOptions(o);
  const bool two = !o.other.empty();
  ReadingProgress progress(o.quiet);
  ThreadPool pool(o.threads > 0 ? o.threads : DefaultThreadCount());
  const ScanContext context{pool, cancel, [&](int64_t done, int64_t total) { progress.Update(done, total); }};
  const InspectReportOptions report{.full = o.full,
                                    .quiet = o.quiet,
                                    .order = OrderOf(o.sort, two),
                                    .top = o.top,
                                    .tolerance = o.tolerance,
                                    .style = TextStyle::ForStandardOutput()};
  if (two) {
    const WeightDiff diff = DiffWeights(o.path, o.other, o.filters, context);
    Print(stdout, "{}", o.json ? JsonText(WeightDiffJson(diff, o.tolerance)) : WeightDiffText(diff, report));
    return diff.Equal(o.tolerance) ? 0 : 1;
  }
  InspectOptions options{.filters = o.filters, .statistics = o.statistics};
  if (o.verify) options.read_again_bytes = std::numeric_limits<int64_t>::max();
  const Inspection inspection = InspectWeights(o.path, options, context);
  Print(stdout, "{}", o.json ? JsonText(InspectionJson(inspection)) : InspectionText(inspection, report));
  return inspection.broken() ? 1 : 0;
}

}  // namespace qwen_image
