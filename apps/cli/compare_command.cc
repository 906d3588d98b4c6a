// qwen-image compare REF RUN: two runs, folders or files of tensors, or two pictures. Exit code 0: passed, 1:
// failed.
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "command.h"
#include "core/fail.h"
#include "files/output_file.h"
#include "files/text.h"
#include "parity/compare/attribution.h"
#include "parity/compare/runs.h"
#include "parity/hints/causes.h"
#include "parity/record/name_map.h"
#include "parity/report/html_page.h"
#include "parity/report/text.h"
#include "parity/report/tools.h"
#include "print.h"

namespace qwen_image::cli {
namespace {

struct CompareCommandOptions {
  std::filesystem::path ref, run;
  std::filesystem::path map;
  std::filesystem::path json, junit, report;  // "-" for `json`: to stdout
  std::optional<double> atol, rtol;
  double floor_factor = 2;
  bool attribute = false;
  std::filesystem::path isolated;
  std::vector<std::string> only;
  int64_t worst = 1;
  bool all = false;
  bool force = false;
  bool quiet = false;
  std::string color = "auto";
};

// A line on stderr for comparisons that take their time.
class CompareProgress {
 public:
  CompareProgress(bool quiet, const CancelFlag& cancel)
      : quiet_(quiet), terminal_(isatty(STDERR_FILENO)), cancel_(cancel) {}
  ~CompareProgress() {
    if (shown_ && terminal_) Print(stderr, "\r\x1b[2K");
  }

  void Update(int64_t done, int64_t total) {
    cancel_.ThrowIfCancelled();
    const auto now = Clock::now();
    if (quiet_ || now < next_) return;
    const double percent = total > 0 ? 100.0 * static_cast<double>(done) / static_cast<double>(total) : 0;
    Print(stderr, "{}comparing: {:.0f} %{}", terminal_ ? "\r\x1b[2K" : "", percent, terminal_ ? "" : "\n");
    shown_ = true;
    next_ = now + (terminal_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(2000));
  }

 private:
  using Clock = std::chrono::steady_clock;
  bool quiet_, terminal_, shown_ = false;
  const CancelFlag& cancel_;
  Clock::time_point next_ = Clock::now() + std::chrono::seconds(2);
};

bool UsesColor(const std::string& choice) {
  if (choice != "auto") return choice == "always";
  const char* no_color = std::getenv("NO_COLOR");  // any value but an empty one: see no-color.org
  return isatty(STDOUT_FILENO) && !(no_color && *no_color);
}

void CheckTolerances(const CompareCommandOptions& o) {
  for (const auto& [value, name] : {std::pair(o.atol, "--atol"), std::pair(o.rtol, "--rtol"),
                                    std::pair(std::optional(o.floor_factor), "--floor-factor")}) {
    if (value && !(std::isfinite(*value) && *value >= 0))
      Fail(ErrorKind::kUsage, "{} must be a number that is not negative", name);
  }
}

bool IsPng(const std::filesystem::path& path) { return path.extension() == ".png"; }

void RefuseOtherSettings(const record::TensorSet& ref, const record::TensorSet& run) {
  std::string list;
  for (const compare::ManifestDifference& d : compare::CompareManifests(ref.manifest(), run.manifest())) {
    if (d.fatal)
      list +=
          fmt::format("\n  {}: {} and {}", Printable(d.key), Printable(d.ref, 100), Printable(d.run, 100));
  }
  if (!list.empty())
    Fail(ErrorKind::kUsage,
         "{} and {} are runs with different settings (--force compares them all the same):{}",
         ref.path().string(), run.path().string(), list);
}

void WriteText(const std::filesystem::path& path, const std::string& text) {
  OutputFile file(path);
  file.Write(text.data(), text.size());
  file.Commit();
}

// What a user asked for must arrive, also on stdout.
void WriteToStandardOutput(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    Fail(ErrorKind::kCannotWrite, "cannot write to the standard output");
}

void WriteReports(const compare::Comparison& comparison,
                  const std::optional<compare::Attribution>& attribution, const CompareCommandOptions& o) {
  Json json = report::ReportJson(comparison);
  std::string text = report::ReportText(
      comparison, {.tell_of_all = true, .all = o.all, .worst = o.worst, .color = UsesColor(o.color)});
  if (attribution) {
    json["attribution"] = compare::AttributionJson(*attribution);
    text += compare::AttributionText(*attribution);
  }
  const std::string json_text = json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (o.json == "-") {
    WriteToStandardOutput(json_text);
  } else if (!o.json.empty()) {
    WriteText(o.json, json_text);
  }
  if (!o.junit.empty()) WriteText(o.junit, report::ReportJUnit(comparison));
  if (o.quiet) return;
  if (o.json == "-") {
    Print(stderr, "{}", text);
  } else {
    WriteToStandardOutput(text);
  }
}

// Opens what is compared with the reference.
record::TensorSet OpenRun(const std::filesystem::path& path, const record::TensorSet& ref,
                          const CompareCommandOptions& o) {
  record::TensorSet run = record::TensorSet::Open(path);
  if (!o.map.empty()) run.Rename(record::NameMap::Read(o.map));
  if (!o.force) RefuseOtherSettings(ref, run);
  return run;
}

compare::Comparison CompareWithProgress(const record::TensorSet& ref, const record::TensorSet& run,
                                        const CompareCommandOptions& o, const CancelFlag& cancel) {
  CompareProgress progress(o.quiet, cancel);
  return compare::CompareSets(
      ref, run,
      {.criterion = {.atol = o.atol, .rtol = o.rtol, .floor_factor = o.floor_factor},
       .only = o.only,
       .on_progress = [&](int64_t done, int64_t total) { progress.Update(done, total); }});
}

int Run(const CompareCommandOptions& o, const CancelFlag& cancel) {
  // 1. What would fail after a long comparison is found now.
  CheckTolerances(o);
  for (const std::filesystem::path* output : {&o.json, &o.junit, &o.report}) {
    if (!output->empty() && *output != "-") CheckWritable(*output);
  }
  if (IsPng(o.ref) || IsPng(o.run)) {
    const compare::Comparison pictures = compare::ComparePngFiles(o.ref, o.run);
    WriteReports(pictures, std::nullopt, o);
    if (!o.report.empty()) report::WriteHtmlReport(o.report, pictures);
    return pictures.passed() ? 0 : 1;
  }

  // 2. Open both sides and compare.
  const record::TensorSet ref = record::TensorSet::Open(o.ref);
  const record::TensorSet run = OpenRun(o.run, ref, o);
  compare::Comparison comparison = CompareWithProgress(ref, run, o, cancel);
  hints::AddHints(comparison, ref, run);

  // 3. Who makes the error?
  std::optional<compare::Attribution> attribution;
  if (!o.isolated.empty()) {
    const record::TensorSet isolated_run = OpenRun(o.isolated, ref, o);
    if (!compare::IsIsolatedRun(isolated_run.manifest()))
      Fail(ErrorKind::kUsage, "{} was not recorded with --substitute '*'", o.isolated.string());
    const compare::Comparison isolated = CompareWithProgress(ref, isolated_run, o, cancel);
    attribution = compare::Attribute(&comparison, &isolated);
  } else if (o.attribute) {
    attribution = compare::IsIsolatedRun(run.manifest()) ? compare::Attribute(nullptr, &comparison)
                                                         : compare::Attribute(&comparison, nullptr);
  }

  // 4. Report.
  WriteReports(comparison, attribution, o);
  if (!o.report.empty()) {
    report::WriteHtmlReport(o.report, comparison, ref, run);
    if (!o.quiet) Print(stderr, "report written to {}\n", o.report.string());
  }
  return comparison.passed() ? 0 : 1;
}

OptionList OptionsOf(CompareCommandOptions& o) {
  const char *limits = "Limits", *precision = "Quantized against float", *reporting = "Reporting";
  return {
      {.names = "ref",
       .target = &o.ref,
       .help = "The reference: a run's folder (with manifest.json), a folder of .npy, .npz and .safetensors "
               "files, one "
               "such file, or a .png",
       .required = true},
      {.names = "run",
       .target = &o.run,
       .help = "What is compared with it: the same kinds",
       .required = true},
      {.names = "--map",
       .target = &o.map,
       .help = "JSON file {\"name in RUN\": \"name in REF\"}; a '*' stands for any text and is carried over"},
      {.names = "--only",
       .target = &o.only,
       .help = "Only tensors with these names ('*' matches any text)",
       .comma_separated = true},
      {.names = "--force",
       .target = &o.force,
       .help = "Compare also runs with other prompts, sizes, steps or seeds"},
      {.names = "--atol",
       .target = &o.atol,
       .help = "Judge by |error| <= atol + rtol |ref|, as numpy.allclose does",
       .group = limits},
      {.names = "--rtol",
       .target = &o.rtol,
       .help = "The relative part of it (default: 0 if --atol is given)",
       .group = limits},
      {.names = "--floor-factor",
       .target = &o.floor_factor,
       .help = "At bfloat16 or float16: allow this many times the error of the reference's own bfloat16 run "
               "(default: "
               "2)",
       .group = limits},
      {.names = "--attribute",
       .target = &o.attribute,
       .help = "Show which blocks and matrices make the error; both runs need --checkpoints all",
       .group = precision},
      {.names = "--isolated",
       .target = &o.isolated,
       .help =
           "RUN once more, recorded with --substitute '*': separates the error of the weights from what the "
           "activations carry, and suggests which weights to keep at 8 bits",
       .group = precision},
      {.names = "--json",
       .target = &o.json,
       .help = "Write all figures to this file, or '-' for stdout",
       .group = reporting},
      {.names = "--junit",
       .target = &o.junit,
       .help = "Write a JUnit report to this file",
       .group = reporting},
      {.names = "--report",
       .target = &o.report,
       .help = "Write a page for a browser to this file: curves, heat maps, pictures",
       .group = reporting},
      {.names = "--all",
       .target = &o.all,
       .help = "List every tensor, not only failing ones and the worst of each component",
       .group = reporting},
      {.names = "--worst",
       .target = &o.worst,
       .help = "List so many passing tensors of each component (default: 1)",
       .group = reporting,
       .range = {{0, 1000000}}},
      {.names = "--color",
       .target = &o.color,
       .help = "auto (default), always or never",
       .group = reporting,
       .one_of = {"auto", "always", "never"}},
      {.names = "-q,--quiet",
       .target = &o.quiet,
       .help = "Print errors only; the exit code tells",
       .group = reporting},
  };
}

}  // namespace

Command CompareCommand() {
  const auto o = std::make_shared<CompareCommandOptions>();
  return {.name = "compare",
          .summary = "Compare two runs, tensor by tensor, or two pictures",
          .options = OptionsOf(*o),
          .footer =
              "Examples:\n"
              "  qwen-image compare debug_artifacts/run/ref debug_artifacts/run/cpp\n"
              "  qwen-image compare ref.npz mine.npz --map names.json --json report.json\n"
              "  qwen-image compare a.png b.png",
          .run = [o](const Session& session) { return Run(*o, session.cancel); }};
}

}  // namespace qwen_image::cli
