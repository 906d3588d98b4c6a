// qwen-image prove: examines, loads, draws and compares, and writes one report that can be attached to an
// issue.
#include <memory>

#include "command.h"
#include "core/fail.h"
#include "files/folder.h"
#include "files/numbers.h"
#include "machine_options.h"
#include "model_options.h"
#include "print.h"
#include "progress.h"
#include "prove/folder.h"
#include "prove/proof.h"
#include "text_style.h"
#include "text_table.h"

namespace qwen_image::cli {
namespace {

struct ProveOptions {
  ModelFiles files;
  prove::Options proof{.folder = "qwen-image-report"};
  std::string size;
  bool ignore_memory = false, json = false, quiet = false;
};

// A line for each part, and a bar for the drawings of a part.
class ProvePrinter {
 public:
  explicit ProvePrinter(bool quiet) : quiet_(quiet) {}

  prove::Watch Watching(const CancelFlag& cancel) {
    if (quiet_) return {.cancel = cancel};
    return {.cancel = cancel,
            .on_part = [](int number, int count,
                          const std::string& title) { Print(stderr, "[{}/{}] {}\n", number, count, title); },
            .on_drawing =
                [this](const std::string& what) {
                  progress_ = std::make_unique<ProgressPrinter>(ProgressPrinter::StyleFor(false),
                                                                fmt::format("      {}: ", what));
                },
            .on_progress = [this](const Progress& progress) { progress_->Update(progress); },
            .on_part_done =
                [this](const std::string& status, const std::string& why) {
                  progress_.reset();
                  Print(stderr, "      {}{}{}\n", status, why.empty() ? "" : ": ", why);
                }};
  }

 private:
  bool quiet_;
  std::unique_ptr<ProgressPrinter> progress_;
};

std::string ProofText(const prove::Report& report, const prove::ReportFolder& folder,
                      const TextStyle& style) {
  TextTable table({{"part", false}, {"", false}, {"time"}});
  for (const Json& part : report.document["parts"]) {
    const double seconds = part.value("part_seconds", 0.0);
    table.AddRow({part["title"], part["status"], seconds > 0 ? HumanSeconds(seconds) : ""});
  }
  std::string text;
  for (const std::string& line : table.Lines()) text += line + "\n";
  return text + (report.passed() ? style.Green("\nnothing failed\n") : style.Red("\nsomething failed\n")) +
         fmt::format(
             "report: {} and {}; neither holds folders or prompts of yours; names of weight files stay\n",
             folder.page().string(), folder.document().string());
}

int RunProof(ProveOptions o, const CancelFlag& cancel) {
  const ModelFiles model = FindModel(o.files);
  for (const std::filesystem::path& path : {model.model, model.transformer, model.text_encoder, model.vae}) {
    if (!path.empty() && !Exists(path)) Fail(ErrorKind::kBadInput, "there is no {}", path.string());
  }
  if (!o.size.empty()) o.proof.size = ParseSize(o.size);
  o.proof.check_memory = !o.ignore_memory;
  const prove::ReportFolder folder(o.proof.folder);
  ProvePrinter printer(o.quiet);
  const prove::Report report = prove::Prove(model, o.proof, printer.Watching(cancel));
  folder.Write(report);
  Print(stdout, "{}",
        o.json ? prove::DocumentText(report.document)
               : ProofText(report, folder, TextStyle::ForStandardOutput()));
  return report.passed() ? 0 : 1;
}

OptionList OptionsOfProof(ProveOptions& o) {
  return ModelOptionList(o.files) +
         OptionList{
             {.names = "-o,--output",
              .target = &o.proof.folder,
              .help = "The folder of the report (default: qwen-image-report); new, empty, or of an "
                      "earlier report"},
             {.names = "--quick", .target = &o.proof.quick, .help = "Small pictures and few steps only"},
             {.names = "-s,--size",
              .target = &o.size,
              .help = "WIDTHxHEIGHT of all pictures (default: about 256x256, and one of the model's "
                      "own size)"},
             {.names = "--steps",
              .target = &o.proof.steps,
              .help = "Denoising steps of all pictures (default: the model's, at most 20; 4 where "
                      "precisions are compared)",
              .range = {{1, 1000}}},
             {.names = "--reference",
              .target = &o.proof.reference,
              .help = "A run of diffusers with the same model, as tools/reference/export.py writes "
                      "it, to compare with"},
             InstructionSetOption(),
             ThreadsOption(o.proof.threads),
             IgnoreMemoryOption(o.ignore_memory),
             {.names = "--json", .target = &o.json, .help = "Print prove.json"},
             {.names = "-q,--quiet", .target = &o.quiet, .help = "No progress on stderr"}};
}

}  // namespace

Command ProveCommand() {
  const auto o = std::make_shared<ProveOptions>();
  return {
      .name = "prove",
      .summary = "Examine, load, draw with and measure a model, and write a report for an issue",
      .options = OptionsOfProof(*o),
      .footer =
          "What is done: doctor, loading, the same picture in fast and in exact precision compared "
          "block by block,\n"
          "a few pictures with seconds and memory, and the comparison with diffusers where a run of it is "
          "given.\n"
          "prove.html and prove.json hold prompts of the program's own, and no paths of yours.\n\n"
          "Examples:\n"
          "  qwen-image prove --quick\n"
          "  qwen-image prove --model ~/models/Qwen-Image -o report\n"
          "  qwen-image prove --model ~/models/Qwen-Image --transformer qwen-image-Q4_K_M.gguf --quick "
          "--json\n\n"
          "Exit codes: 0 nothing failed, 1 something did (the report says what), 2 wrong usage, 3 no such "
          "model,\n"
          "5 the report cannot be written, 130 interrupted.",
      .run = [o](const Session& session) { return RunProof(*o, session.cancel); }};
}

}  // namespace qwen_image::cli
