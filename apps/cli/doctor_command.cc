// qwen-image doctor: what a model is, whether it is whole and fits, what would go wrong.

#include <memory>

#include "command.h"
#include "core/fail.h"
#include "core/threads.h"
#include "doctor/diagnosis_json.h"
#include "draw/opened_model.h"
#include "files/text.h"
#include "machine_options.h"
#include "many_machines.h"
#include "model_options.h"
#include "print.h"
#include "team/measure.h"
#include "text_style.h"
#include "text_table.h"

namespace qwen_image::cli {
namespace {

struct DoctorOptions {
  std::string path;  // the same as --model
  ModelFiles files;
  int threads = 0;
  bool json = false;
  std::vector<std::string> machines;
};

constexpr size_t kMarkWidth = 8;

std::string Marked(Health health, const TextStyle& style) {
  switch (health) {
    case Health::kGood:
      return style.Green("good    ");
    case Health::kNote:
      return style.Dim("note    ");
    case Health::kWarning:
      return style.Yellow("warning ");
    default:
      return style.Red("broken  ");
  }
}

// "BF16 3.1 GB + 4-bit g64 11.5 GB", the largest first.
std::string FormatsText(const doctor::Part& part) {
  std::vector<std::pair<int64_t, std::string>> sorted;
  for (const auto& [format, bytes] : part.formats) sorted.emplace_back(bytes, format);
  std::sort(sorted.rbegin(), sorted.rend());
  std::string text;
  for (const auto& [bytes, format] : sorted) {
    text += fmt::format("{}{}", text.empty() ? "" : " + ",
                        sorted.size() == 1 ? format : fmt::format("{} {}", format, HumanBytes(bytes)));
  }
  return text;
}

// A message of the library may have many lines: a few are enough here.
std::string Shortened(const std::string& text) {
  constexpr size_t kMaxLines = 12;
  size_t end = 0, lines = 0;
  while (end < text.size() && lines < kMaxLines) {
    end = std::min(text.find('\n', end), text.size() - 1) + 1;
    ++lines;
  }
  const auto rest = std::count(text.begin() + static_cast<std::ptrdiff_t>(end), text.end(), '\n');
  return end == text.size() ? text : fmt::format("{}  … and {} more lines", text.substr(0, end), rest + 1);
}

std::string SecondsText(double seconds) {
  return seconds < 1 ? fmt::format("{:.2f} s", seconds) : fmt::format("{:.0f} s", seconds);
}

std::string DiagnosisText(const doctor::Diagnosis& found, const TextStyle& style) {
  std::string text = fmt::format("{}\n", style.Bold(Printable(found.what)));
  if (!found.variant.name.empty()) text += fmt::format("  recognized by {}\n", Printable(found.variant.how));
  TextTable parts(
      {{"part", false}, {"size"}, {"parameters"}, {"stored as", false}, {"", false}, {"where", false}});
  for (const doctor::Part& part : found.parts) {
    parts.AddRow({part.name, part.bytes ? HumanBytes(part.bytes) : "",
                  part.parameters ? HumanCount(part.parameters) : "", FormatsText(part), Printable(part.text),
                  Printable(part.path.string())});
  }
  if (!found.parts.empty()) {
    for (const std::string& line : parts.Lines()) text += line + "\n";
    text += "\n";
  }
  for (const HealthFinding& finding : found.findings) {
    const std::string line = PrintableLines(fmt::format("{}: {}", finding.subject, Shortened(finding.text)));
    // Lists of the library keep their lines; the mark takes the place of the first indentation.
    const std::string indent(kMarkWidth, ' ');
    const std::string body =
        line.find('\n') == line.npos ? Wrap(line, indent, kReportWidth) : indent + line + "\n";
    text += Marked(finding.health, style) + body.substr(kMarkWidth);
  }
  if (!found.pictures.empty()) {
    text += fmt::format(
        "\n{} of memory are available; a step is estimated from one matrix product, timed just now.\n",
        HumanBytes(found.available_memory));
    TextTable pictures({{"picture", false}, {"memory"}, {"", false}, {"a step"}, {"with guidance"}});
    for (const doctor::PictureCost& picture : found.pictures) {
      pictures.AddRow({fmt::format("{}x{}", picture.width, picture.height), HumanBytes(picture.memory),
                       picture.fits ? "fits" : "does not fit", SecondsText(picture.seconds_per_step),
                       SecondsText(2 * picture.seconds_per_step)});
    }
    for (const std::string& line : pictures.Lines()) text += line + "\n";
  }
  text += found.usable() ? style.Green("\nusable\n") : style.Red("\nnot usable as it is\n");
  return text;
}

std::string NetworkText(const team::Network& network) {
  return fmt::format(
      "network: {:.0f} µs until a byte is there, {} a second from each machine while all send\n",
      1e6 * network.latency, HumanBytes(static_cast<int64_t>(network.bytes_per_second)));
}

// What the machines are worth together. Opening the model compares their builds and weights.
std::string MachinesText(const ModelFiles& model, const Session& session) {
  const Pipeline pipeline(model,
                          {.check_memory = false, .device = Device::kCpu, .machines = session.machines});
  const Machines& machines = *session.machines;
  std::string text = fmt::format("\n{} machines, the same build and weights on all:", machines.size());
  for (int rank = 0; rank < machines.size(); ++rank)
    text += fmt::format("{} {}", rank == 0 ? "" : ",", Printable(machines.NameOf(rank)));
  const team::Network network = team::MeasureNetwork(machines.session());
  text += "\n" + NetworkText(network);

  const draw::OpenedModel& opened = draw::ModelOf(pipeline);
  const std::vector<ImageSize> sizes = {{512, 512}, {1024, 1024}};
  std::vector<TokenGrid> grids;
  for (const ImageSize& size : sizes) grids.push_back(opened.geometry().GridOf(size));
  ThreadPool pool(pipeline.threads());
  const auto passes = team::MeasurePasses(*opened.model, machines.session(), grids, pool);
  TextTable table({{"seconds a step", false},
                   {"this machine alone"},
                   {"--split sequence"},
                   {"--split layers"},
                   {"best", false}});
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (const bool guided : {true, false}) {
      const team::StepCost cost = team::Predict(passes[i], network, machines.size(), guided);
      const bool alone = cost.alone <= std::min(cost.sequence, cost.layers);
      table.AddRow({fmt::format("{}x{}{}", sizes[i].width, sizes[i].height, guided ? ", guidance" : ""),
                    SecondsText(cost.alone), SecondsText(cost.sequence), SecondsText(cost.layers),
                    alone                          ? "this machine alone"
                    : cost.sequence <= cost.layers ? "sequence"
                                                   : "layers"});
    }
  }
  for (const std::string& line : table.Lines()) text += line + "\n";
  return text + "(predicted: products and attention timed just now, the network as measured)\n";
}

int Run(const DoctorOptions& o, const Session& session) {
  if (const std::optional<int> code = RunOnMachines(o.machines, session)) return *code;
  const CancelFlag& cancel = session.cancel;
  if (session.machines && o.json) Fail(ErrorKind::kUsage, "--json is for one machine");
  ModelFiles files = o.files;
  if (!o.path.empty()) {
    if (!files.model.empty()) Fail(ErrorKind::kUsage, "give the model once: as the path, or with --model");
    files.model = o.path;
  }
  ThreadPool pool(o.threads > 0 ? o.threads : DefaultThreadCount());
  doctor::Diagnosis found;
  try {
    found = doctor::Diagnose(FindModel(files), pool, cancel);
  } catch (const Error& error) {  // not in the cache
    if (error.kind() != ErrorKind::kBadInput) throw;
    found.what = "no model was found";
    found.findings = {{Health::kBroken, "model", error.message()}};
  }
  Print(stdout, "{}",
        o.json ? doctor::DiagnosisJson(found).dump(1, ' ', false, Json::error_handler_t::replace) + "\n"
               : DiagnosisText(found, TextStyle::ForStandardOutput()));
  if (found.usable() && session.machines) Print(stdout, "{}", MachinesText(FindModel(files), session));
  return found.usable() ? 0 : 1;
}

}  // namespace

Command DoctorCommand() {
  const auto o = std::make_shared<DoctorOptions>();
  return {
      .name = "doctor",
      .summary = "What a model is, whether it is whole and fits, what would go wrong",
      .options =
          OptionList{
              {.names = "path",
               .target = &o->path,
               .help = "The model: a folder, a file, owner/name or a short name (the same as --model)"}} +
          ModelOptionList(o->files) +
          OptionList{
              ThreadsOption(o->threads, "", "Threads of the estimate (default: all processors)"),
              {.names = "--json", .target = &o->json, .help = "Print one JSON object"},
              MachinesOption(o->machines, "",
                             "Also compare these machines, measure the network between them and predict "
                             "how long a step takes on all of them together (as in generate)")},
      .footer =
          "Examples:\n"
          "  qwen-image doctor models/tiny\n"
          "  qwen-image doctor ~/models/Qwen-Image --machines node1,node2\n"
          "  qwen-image doctor ~/models/Qwen-Image --transformer qwen-image-Q4_K_M.gguf\n"
          "  qwen-image doctor ~/models/Qwen-Image --lora Qwen-Image-Lightning-4steps.safetensors --json\n\n"
          "Exit codes: 0 a picture can be drawn, 1 it cannot, 2 wrong usage.",
      .run = [o](const Session& session) { return Run(*o, session); },
      .many_machines = true};
}

}  // namespace qwen_image::cli
