// qwen-image bench: loads a model once and draws with it, one picture for each size and number of steps.

#include <chrono>
#include <memory>

#include "command.h"
#include "core/fail.h"
#include "core/memory.h"
#include "device/available.h"
#include "device_report.h"
#include "draw/opened_model.h"
#include "files/numbers.h"
#include "files/text.h"
#include "machine_options.h"
#include "many_machines.h"
#include "model_options.h"
#include "print.h"
#include "profile_report.h"
#include "progress.h"
#include "text_table.h"
#include "weights/model_name.h"

namespace qwen_image::cli {
namespace {

struct BenchOptions {
  ModelFiles files;
  std::vector<std::string> sizes;
  std::vector<int64_t> steps;
  double cfg = 1;
  MachineOptions machine;
  bool json = false, quiet = false, profile = false;
};

// What another port of the 20-billion model reports for an M3 Max, with 4-bit weights and without guidance:
// the figures to beat.
struct FigureToBeat {
  int64_t side, steps;
  double seconds;
};
constexpr FigureToBeat kFiguresToBeat[] = {{512, 4, 17}, {512, 20, 76}, {768, 20, 170}};

struct Line {
  Picture picture;
  double total = 0;           // from the request to the pixels
  int64_t device_memory = 0;  // MLX's peak
  Profile profile = {};       // empty unless asked for
};

bool IsFullSize(const Pipeline& pipeline) { return draw::ModelOf(pipeline).model->published_size(); }

const FigureToBeat* FigureFor(const Picture& p) {
  for (const FigureToBeat& figure : kFiguresToBeat) {
    if (p.width == figure.side && p.height == figure.side && p.steps == figure.steps && p.cfg <= 1)
      return &figure;
  }
  return nullptr;
}

// Steps of small models take milliseconds.
std::string Duration(double seconds) {
  return seconds < 0.1 ? fmt::format("{:.1f} ms", 1000 * seconds) : HumanSeconds(seconds);
}

double PerStep(const Picture& p) { return p.seconds.denoise / static_cast<double>(p.steps_run); }

std::vector<GenerateRequest> RequestsOf(const BenchOptions& o, const Pipeline& pipeline) {
  const Defaults& defaults = pipeline.defaults();
  std::vector<std::string> sizes = o.sizes;
  if (sizes.empty())
    sizes = {IsFullSize(pipeline) ? "512x512" : fmt::format("{}x{}", defaults.width, defaults.height)};
  std::vector<int64_t> steps = o.steps;
  if (steps.empty()) steps = {4};
  std::vector<GenerateRequest> requests;
  for (const std::string& size : sizes) {
    for (const int64_t count : steps) {
      GenerateRequest request;
      // Another prompt each time: one that was encoded before would cost nothing.
      request.prompt = fmt::format("a red circle on a blue background, picture {}", requests.size() + 1);
      std::tie(request.width, request.height) = ParseSize(size);
      request.steps = count;
      request.cfg = o.cfg;
      pipeline.Check(request);
      requests.push_back(std::move(request));
    }
  }
  return requests;
}

Line DrawOne(const Pipeline& pipeline, const GenerateRequest& request, const BenchOptions& o,
             const CancelFlag& cancel) {
  ProgressPrinter progress(ProgressPrinter::StyleFor(o.quiet || o.json),
                           fmt::format("{}x{}, {} steps: ", *request.width, *request.height, *request.steps));
  device::ResetPeakDeviceMemory();
  const auto start = std::chrono::steady_clock::now();
  Line line;
  line.picture = pipeline.Generate(request, {.on_progress = [&](const Progress& p) { progress.Update(p); },
                                             .cancel = &cancel,
                                             .profile = o.profile ? &line.profile : nullptr});
  line.total = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  line.device_memory = device::PeakDeviceMemory();
  return line;
}

std::string TextOf(const std::vector<Line>& lines, bool full_size) {
  TextTable table({{"picture", false},
                   {"steps"},
                   {"prompt"},
                   {"a step"},
                   {"decode"},
                   {"total"},
                   {"device memory"},
                   {"to beat"}});
  for (const Line& line : lines) {
    const Picture& p = line.picture;
    const FigureToBeat* figure = full_size ? FigureFor(p) : nullptr;
    table.AddRow({fmt::format("{}x{}", p.width, p.height), std::to_string(p.steps),
                  Duration(p.seconds.encode_prompt), Duration(PerStep(p)), Duration(p.seconds.decode),
                  Duration(line.total), line.device_memory > 0 ? HumanBytes(line.device_memory) : "",
                  figure ? HumanSeconds(figure->seconds) : ""});
  }
  std::string text;
  for (const std::string& row : table.Lines()) text += row + "\n";
  for (const Line& line : lines) {
    if (!line.profile.components().empty())
      text += fmt::format("\n{}x{}:\n{}\n", line.picture.width, line.picture.height,
                          ProfileText(line.profile, line.picture.steps_run));
  }
  text +=
      full_size
          ? "to beat: what another MLX port reports for an M3 Max (512x512 with 4 and 20 steps, 768x768 "
            "with 20; cfg 1)\n"
          : "The figures to beat (512x512: 17 s with 4 steps, 76 s with 20; 768x768: 170 s with 20, on an "
            "M3 Max) are for the\n20-billion model; this one is smaller, so they are not set beside it.\n";
  return text;
}

Json JsonOf(const Line& line, bool full_size) {
  const Picture& p = line.picture;
  const FigureToBeat* figure = full_size ? FigureFor(p) : nullptr;
  Json json = {{"width", p.width},
               {"height", p.height},
               {"steps", p.steps},
               {"seconds",
                {{"encode_prompt", p.seconds.encode_prompt},
                 {"denoise", p.seconds.denoise},
                 {"per_step", PerStep(p)},
                 {"decode", p.seconds.decode},
                 {"total", line.total}}},
               {"prompt_from_cache", p.prompt_from_cache},
               {"device_memory_bytes", line.device_memory > 0 ? Json(line.device_memory) : Json()},
               {"seconds_to_beat", figure ? Json(figure->seconds) : Json()}};
  if (!line.profile.components().empty()) json["profile_microseconds"] = ProfileJson(line.profile);
  return json;
}

int Run(const BenchOptions& o, const Session& session) {
  if (const std::optional<int> code = RunOnMachines(o.machine.machines, session)) return *code;
  const CancelFlag& cancel = session.cancel;
  const ModelFiles model = FindModel(o.files, o.quiet);
  const auto start = std::chrono::steady_clock::now();
  const Pipeline pipeline(model, o.machine.ForPipeline({}, session.machines));
  const double load = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (o.profile) CheckCanBeProfiled(pipeline);
  const std::vector<GenerateRequest> requests = RequestsOf(o, pipeline);
  const std::string_view device = NameOf(pipeline.device());
  const std::string_view precision_name = NameOf(o.machine.PrecisionInUse());
  if (!o.json)
    Print(stdout, "{} on {}{}, {}; loaded in {}\n", Printable(ModelName(model)), device,
          KernelsNote(pipeline), precision_name, Duration(load));
  std::vector<Line> lines;
  for (const GenerateRequest& request : requests) lines.push_back(DrawOne(pipeline, request, o, cancel));

  const bool full_size = IsFullSize(pipeline);
  const int64_t peak = MemoryInUse().peak;
  if (!o.json) {
    const std::string note = WeightsNote(pipeline);
    Print(stdout, "{}peak memory of the process: {}\n{}", TextOf(lines, full_size), HumanBytes(peak),
          note.empty() ? "" : fmt::format("weights: {}\n", note));
    return 0;
  }
  Json json = {{"model", ModelName(model)},
               {"device", device},
               {"precision", precision_name},
               {"threads", pipeline.threads()},
               {"load_seconds", load},
               {"peak_memory_bytes", peak},
               {"weights", WeightsJson(pipeline)},
               {"kernels", KernelsJson(pipeline)},
               {"pictures", Json::array()}};
  for (const Line& line : lines) json["pictures"].push_back(JsonOf(line, full_size));
  Print(stdout, "{}\n", json.dump(1, ' ', false, Json::error_handler_t::replace));
  return 0;
}

}  // namespace

Command BenchCommand() {
  const auto o = std::make_shared<BenchOptions>();
  return {
      .name = "bench",
      .summary = "Draw pictures of several sizes and time each stage",
      .options =
          ModelOptionList(o->files) +
          OptionList{
              DeviceOption(o->machine),
              NamedOption("--precision", o->machine.precision, "fast or exact, as in generate"),
              {.names = "--sizes",
               .target = &o->sizes,
               .help =
                   "WIDTHxHEIGHT, several separated by commas (default: the model's; 512x512 for Qwen-Image)",
               .comma_separated = true},
              {.names = "--steps",
               .target = &o->steps,
               .help = "Denoising steps, several separated by commas (default: 4)",
               .range = {{1, 1000}},
               .comma_separated = true},
              {.names = "--cfg",
               .target = &o->cfg,
               .help = "Guidance scale; above 1 a step takes twice the time (default: 1)"},
              InstructionSetOption(),
              ThreadsOption(o->machine.threads),
              IgnoreMemoryOption(o->machine.ignore_memory),
              MachinesOption(o->machine.machines),
              SplitOption(o->machine.split),
              {.names = "--profile",
               .target = &o->profile,
               .help = "Also print the microseconds of each operation of each component (on the CPU)"},
              {.names = "--json", .target = &o->json, .help = "Print one JSON object"},
              {.names = "-q,--quiet", .target = &o->quiet, .help = "No progress on stderr"}},
      .footer =
          "Pictures are drawn one after the other and thrown away. The first one also copies the weights to "
          "the "
          "device.\n\n"
          "Examples:\n"
          "  qwen-image bench\n"
          "  qwen-image bench --device gpu -m ~/models/Qwen-Image-2512-4bit --sizes 512x512,768x768 --steps "
          "4,20\n"
          "  qwen-image bench --sizes 64x64,128x128 --steps 2 --json",
      .run = [o](const Session& session) { return Run(*o, session); },
      .many_machines = true};
}

}  // namespace qwen_image::cli
