// qwen-image convert: reads a model in any form that is supported, and writes it as a diffusers folder.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "command.h"
#include "convert/model.h"
#include "core/fail.h"
#include "core/threads.h"
#include "machine_options.h"
#include "model_options.h"
#include "print.h"
#include "progress.h"
#include "text_table.h"

namespace qwen_image::cli {
namespace {

struct ConvertCommandOptions {
  std::filesystem::path source;
  ModelFiles files;
  std::filesystem::path output;
  std::string to;
  int group_size = 64;
  std::vector<std::string> only;
  std::vector<std::string> rules;
  double shard_gigabytes = 5;
  int threads = 0;
  bool overwrite = false;
  bool json = false;
  bool quiet = false;
};

// A bar with the time left on a terminal, a line every few seconds elsewhere.
class ConversionBar {
 public:
  explicit ConversionBar(bool quiet) : style_(ProgressPrinter::StyleFor(quiet)) {}
  ~ConversionBar() {
    if (shown_ && style_ == ProgressPrinter::Style::kBar) Print(stderr, "\r\x1b[2K");
  }

  void Update(const convert::Progress& p) {
    const bool bar = style_ == ProgressPrinter::Style::kBar;
    const auto interval = bar ? std::chrono::milliseconds(100) : std::chrono::seconds(5);
    const auto now = Clock::now();
    const bool new_component = !shown_ || p.component != component_;
    if (style_ == ProgressPrinter::Style::kSilent || (!new_component && now - last_ < interval)) return;
    last_ = now;
    shown_ = true;
    component_ = p.component;
    const std::string text = Describe(p, std::chrono::duration<double>(now - start_).count());
    if (!bar) return Print(stderr, "{}\n", text);
    constexpr int kWidth = 20;
    const int filled = static_cast<int>(std::lround(Share(p) * kWidth));
    std::string blocks;
    for (int i = 0; i < kWidth; ++i) blocks += i < filled ? "█" : "░";
    Print(stderr, "\r\x1b[2K{} {}", blocks, text);
  }

 private:
  using Clock = std::chrono::steady_clock;

  static double Share(const convert::Progress& p) {
    return static_cast<double>(p.done_bytes) / static_cast<double>(std::max<int64_t>(p.total_bytes, 1));
  }

  // "converting transformer, 12.3 GB of 40.9 GB, 1 min 20 s left"
  static std::string Describe(const convert::Progress& p, double elapsed) {
    std::string text = fmt::format("converting {}, {} of {}", NameOf(p.component), HumanBytes(p.done_bytes),
                                   HumanBytes(p.total_bytes));
    const auto done = static_cast<double>(p.done_bytes - p.continued_bytes);
    const auto left = static_cast<double>(p.total_bytes - p.done_bytes);
    if (done > 0 && left > 0 && elapsed > 1)
      text += fmt::format(", {} left", HumanSeconds(elapsed / done * left));
    return text;
  }

  ProgressPrinter::Style style_;
  Clock::time_point start_ = Clock::now(), last_;
  Component component_ = Component::kTransformer;
  bool shown_ = false;
};

std::vector<std::string> Figures(int64_t bytes, const convert::TensorError& error) {
  const double bits =
      8.0 * static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(error.count, 1));
  const bool exact = error.squared_error == 0;
  return {HumanBytes(bytes), fmt::format("{:.2f}", bits), exact ? "exact" : ShortNumber(error.max_abs),
          exact ? "" : fmt::format("{:.3f} %", 100 * error.relative_rmse())};
}

void AddRow(TextTable& table, std::vector<std::string> cells, const std::vector<std::string>& figures) {
  cells.insert(cells.end(), figures.begin(), figures.end());
  table.AddRow(std::move(cells));
}

std::string TotalsText(const convert::Result& result) {
  TextTable table({{"component", false},
                   {"role", false},
                   {"tensors"},
                   {"bytes"},
                   {"bits/weight"},
                   {"largest error"},
                   {"relative RMSE"}});
  for (const convert::RoleTotal& total : convert::TotalsByRole(result.tensors)) {
    AddRow(table, {total.component, total.role, fmt::format("{}", total.tensors)},
           Figures(total.bytes, total.error));
  }
  return fmt::format("{}\n", fmt::join(table.Lines(), "\n"));
}

std::string WorstText(const convert::Result& result) {
  constexpr size_t kWorst = 10;
  const std::vector<convert::ConvertedTensor> worst = convert::WorstTensors(result.tensors, kWorst);
  if (worst.empty()) return "\nEvery value is exactly that of the source.\n";
  TextTable table({{"largest relative errors", false},
                   {"from", false},
                   {"to", false},
                   {"bytes"},
                   {"bits/weight"},
                   {"largest error"},
                   {"relative RMSE"}});
  for (const convert::ConvertedTensor& tensor : worst)
    AddRow(table, {tensor.name, tensor.from, tensor.to}, Figures(tensor.bytes, tensor.error));
  return fmt::format("\n{}\n", fmt::join(table.Lines(), "\n"));
}

convert::Options LibraryOptions(const ConvertCommandOptions& o) {
  constexpr double kGigabyte = 1e9;
  convert::Options options{.to = convert::ParseTarget(o.to),
                           .group_size = o.group_size,
                           .max_shard_bytes = static_cast<int64_t>(o.shard_gigabytes * kGigabyte),
                           .overwrite = o.overwrite,
                           .threads = o.threads};
  for (const std::string& rule : o.rules) options.rules.push_back(convert::ParseEncodingRule(rule));
  for (const std::string& name : o.only) options.only.push_back(ParseComponent(name));
  return options;
}

ModelFiles SourceOf(const ConvertCommandOptions& o) {
  if (!o.source.empty() && !o.files.model.empty())
    Fail(ErrorKind::kUsage, "the model is named twice, as {} and with --model", o.source.string());
  if (!o.files.vision_encoder.empty())
    Fail(ErrorKind::kUsage,
         "convert keeps the vision tower of the text encoder; --vision-encoder is for edits");
  ModelFiles files = o.files;
  if (!o.source.empty()) files.model = o.source;
  files = FindModel(files);
  // A short name may stand for a transformer with LoRAs, of which only another part is wanted.
  const bool whole = o.only.empty() || std::count(o.only.begin(), o.only.end(), "transformer") > 0;
  if (!whole && o.files.loras.empty()) files.loras.clear();
  return files;
}

void PrintResult(const ConvertCommandOptions& o, const convert::Result& result, double seconds) {
  if (o.json) {
    Json json = convert::ConversionJson(result.tensors, result.notes);
    json["output"] = o.output.string();
    json["seconds"] = seconds;
    json["files"] = result.files;
    json["continued_files"] = result.continued;
    return Print(stdout, "{}\n", json.dump(1, ' ', false, Json::error_handler_t::replace));
  }
  const convert::RoleTotal total = convert::TotalOf(result.tensors);
  if (!o.quiet) {
    Print(stdout, "{}{}\n", TotalsText(result), WorstText(result));
    for (const std::string& note : result.notes) Print(stdout, "note: {}\n", note);
  }
  const std::vector<std::string> figures = Figures(total.bytes, total.error);
  Print(stdout, "{}: {} in {} {} ({} bits a weight), {} tensors, {}{}\n", o.output.string(), figures[0],
        result.files, result.files == 1 ? "file" : "files", figures[1], total.tensors, HumanSeconds(seconds),
        result.continued > 0 ? fmt::format("; {} of the files from an earlier run", result.continued) : "");
}

int Run(const ConvertCommandOptions& o, const CancelFlag& cancel) {
  const auto start = std::chrono::steady_clock::now();
  const convert::Options options = LibraryOptions(o);
  convert::Result result;
  try {
    ConversionBar bar(o.quiet);
    result = convert::ConvertModel(SourceOf(o), o.output, options, cancel,
                                   [&](const convert::Progress& progress) { bar.Update(progress); });
  } catch (const Error& error) {
    const std::filesystem::path partial = o.output.string() + ".partial";
    std::error_code ignored;
    if (error.kind() != ErrorKind::kInterrupted || !std::filesystem::exists(partial, ignored)) throw;
    Fail(ErrorKind::kInterrupted, "interrupted; the same command continues from the last finished file in {}",
         partial.string());
  }
  PrintResult(o, result, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return 0;
}

OptionList OptionsOf(ConvertCommandOptions& o) {
  return {
      {.names = "source", .target = &o.source, .help = "The model, as for --model"},
      {.names = "-o,--output",
       .target = &o.output,
       .help = "The folder to write; it must not be there yet",
       .required = true},
      {.names = "--to",
       .target = &o.to,
       .help = "f32, f16, bf16, or MLX's groups of 8 or 4 bits (q8, q4; also q6, q5, q3, q2)",
       .one_of = {"f32", "f16", "bf16", "q8", "q6", "q5", "q4", "q3", "q2"},
       .required = true},
      {.names = "--group-size",
       .target = &o.group_size,
       .help = "Values that share a scale: 32, 64 (default) or 128",
       .one_of = {"32", "64", "128"}},
      {.names = "--only",
       .target = &o.only,
       .help = "Only this component: transformer, text_encoder or vae; may be repeated",
       .one_of = {"transformer", "text_encoder", "vae"}},
      {.names = "--rule",
       .target = &o.rules,
       .help = "GLOB=TYPE: another type (or keep) for tensors with such names; may be repeated, the last "
               "that fits "
               "counts"},
      {.names = "--shard-size",
       .target = &o.shard_gigabytes,
       .help = "The largest file, in GB (default 5)",
       .range = {{1e-6, 1e6}}},
      {.names = "--overwrite",
       .target = &o.overwrite,
       .help = "Replace a model that is there, or an unfinished conversion with other options"},
      ThreadsOption(o.threads),
      {.names = "--json",
       .target = &o.json,
       .help = "Print one JSON object: every tensor's type, size and error"},
      {.names = "-q,--quiet",
       .target = &o.quiet,
       .help = "Print the last line only, no tables and no progress"},
  };
}

}  // namespace

Command ConvertCommand() {
  const auto o = std::make_shared<ConvertCommandOptions>();
  return {
      .name = "convert",
      .summary = "Convert a model: other number types, quantized, from any form to one folder",
      .options = OptionsOf(*o) + ModelOptionList(o->files),
      .footer =
          "Examples:\n"
          "  qwen-image convert models/tiny -o tiny-q4 --to q4                    4 bits, 8 where it "
          "matters\n"
          "  qwen-image convert --transformer t.gguf --only transformer -o t --to bf16\n"
          "  qwen-image convert models/tiny --vae vae.safetensors -o mixed --to q8    parts become one "
          "folder\n"
          "  qwen-image convert models/tiny -o x --to q4 --group-size 32 --rule '*_mod.1.weight=keep'\n\n"
          "Quantized are matrices of the transformer and the text encoder; norms, biases and the VAE are "
          "kept as\n"
          "they are. An interrupted conversion is continued by the same command.\n\n"
          "Exit codes: 0 written, 2 wrong usage, 3 the source is broken or not whole, 5 cannot write, 130 "
          "interrupted.",
      .run = [o](const Session& session) { return Run(*o, session.cancel); }};
}

}  // namespace qwen_image::cli
