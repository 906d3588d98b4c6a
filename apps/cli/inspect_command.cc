// qwen-image inspect: the contents of weight files, what is unusual about them, and how two of them differ.
#include <chrono>
#include <limits>
#include <memory>

#include "command.h"
#include "core/fail.h"
#include "core/threads.h"
#include "inspect/weights.h"
#include "inspect_report.h"
#include "machine_options.h"
#include "model_options.h"
#include "print.h"
#include "progress.h"

namespace qwen_image::cli {
namespace {

struct InspectCommandOptions {
  std::filesystem::path path, other;
  std::vector<std::string> filters;
  std::string sort;
  std::optional<size_t> top;
  double tolerance = 0;
  int threads = 0;
  bool full = false;
  bool statistics = true;
  bool verify = false;
  bool json = false;
  bool quiet = false;
};

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

int Run(const InspectCommandOptions& o, const CancelFlag& cancel) {
  CheckOptions(o);
  const bool two = !o.other.empty();
  ReadingProgress progress(o.quiet);
  ThreadPool pool(o.threads > 0 ? o.threads : DefaultThreadCount());
  const inspect::ScanContext context{pool, cancel,
                                     [&](int64_t done, int64_t total) { progress.Update(done, total); }};
  const InspectReportOptions report{.full = o.full,
                                    .quiet = o.quiet,
                                    .order = OrderOf(o.sort, two),
                                    .top = o.top,
                                    .tolerance = o.tolerance,
                                    .style = TextStyle::ForStandardOutput()};
  if (two) {
    const inspect::WeightDiff diff =
        inspect::DiffWeights(FindWeights(o.path), FindWeights(o.other), o.filters, context);
    Print(stdout, "{}", o.json ? JsonText(WeightDiffJson(diff, o.tolerance)) : WeightDiffText(diff, report));
    return diff.Equal(o.tolerance) ? 0 : 1;
  }
  inspect::InspectOptions options{.filters = o.filters, .statistics = o.statistics};
  if (o.verify) options.read_again_bytes = std::numeric_limits<int64_t>::max();
  const inspect::Inspection inspection = inspect::InspectWeights(FindWeights(o.path), options, context);
  Print(stdout, "{}", o.json ? JsonText(InspectionJson(inspection)) : InspectionText(inspection, report));
  return inspection.broken() ? 1 : 0;
}

OptionList OptionsOf(InspectCommandOptions& o) {
  return {
      {.names = "path",
       .target = &o.path,
       .help = "A safetensors file, a folder with weights, a whole model, owner/name of a pulled one, or the "
               "short name of one (of which the transformer is shown)",
       .required = true},
      {.names = "other", .target = &o.other, .help = "Compare with this one, tensor by tensor"},
      {.names = "--filter",
       .target = &o.filters,
       .help = "Only tensors with these names ('*' matches any text); may be repeated"},
      {.names = "--sort",
       .target = &o.sort,
       .help = "A flat list, sorted by name, bytes, std, max or zeros; with two paths also error",
       .one_of = {"name", "bytes", "std", "max", "zeros", "error"}},
      {.names = "--top", .target = &o.top, .help = "At most N rows of a table", .range = {{1, 100000000}}},
      {.names = "--full", .target = &o.full, .help = "Every key instead of folded blocks, every finding"},
      {.names = "--no-stats",
       .target = [&o] { o.statistics = false; },
       .help = "Headers only, at once; no value is read"},
      {.names = "--verify",
       .target = &o.verify,
       .help = "Read everything twice and compare (without it, 256 MB spread over the files)"},
      {.names = "--tolerance",
       .target = &o.tolerance,
       .help = "With two paths: relative errors ‖B − A‖ / ‖A‖ of a tensor up to this count as equal",
       .range = {{0, std::numeric_limits<double>::max()}}},
      ThreadsOption(o.threads),
      {.names = "--json", .target = &o.json, .help = "Print one JSON object"},
      {.names = "-q,--quiet",
       .target = &o.quiet,
       .help = "Print totals and findings only, no table and no progress"},
  };
}

}  // namespace

Command InspectCommand() {
  const auto o = std::make_shared<InspectCommandOptions>();
  return {
      .name = "inspect",
      .summary = "Look into weight files: keys, statistics, what is wrong; compare two",
      .options = OptionsOf(*o),
      .footer =
          "Examples:\n"
          "  qwen-image inspect models/tiny                             the whole model, blocks folded\n"
          "  qwen-image inspect models/tiny/vae --full                  every key\n"
          "  qwen-image inspect models/tiny --sort std --top 10         the widest spreads\n"
          "  qwen-image inspect models/tiny --filter '*.attn.*bias'     some tensors\n"
          "  qwen-image inspect models/tiny --no-stats --json           names, shapes and types for a tool\n"
          "  qwen-image inspect bf16-model 4bit-model --tolerance 0.1   float against quantized\n\n"
          "Exit codes: 0 fine (warnings and notes are), 1 surely broken (NaN, missing scales, blocks, "
          "shards) or "
          "the\n"
          "two differ, 2 wrong usage, 3 nothing can be read.",
      .run = [o](const Session& session) { return Run(*o, session.cancel); }};
}

}  // namespace qwen_image::cli
