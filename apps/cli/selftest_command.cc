// qwen-image selftest: records two runs on the CPU, then repeats them on another device, stage by stage on
// the CPU's tensors and once more by itself.

#include <chrono>
#include <memory>

#include "command.h"
#include "core/fail.h"
#include "device_report.h"
#include "draw/opened_model.h"
#include "files/numbers.h"
#include "files/scratch_folder.h"
#include "machine_options.h"
#include "model_options.h"
#include "parity/compare/checker.h"
#include "parity/compare/image.h"
#include "parity/record/run_writer.h"
#include "print.h"
#include "progress.h"
#include "selftest_report.h"
#include "weights/model_name.h"

namespace qwen_image::cli {
namespace {

struct SelftestOptions {
  ModelFiles files;
  std::string size;
  std::optional<int64_t> steps;
  MachineOptions machine;
  bool json = false, quiet = false;
};

constexpr const char* kLevel = "blocks";

device::DeviceInfo DeviceToTest(std::optional<Device> asked) {
  const std::vector<device::DeviceInfo> devices = device::ListDevices();
  if (asked == Device::kCpu)
    Fail(ErrorKind::kUsage,
         "the CPU is what other devices are compared with; name one of those (see qwen-image devices)");
  const Device wanted =
      asked.value_or(Device::kAuto) == Device::kAuto ? Device::kAuto : device::ResolveDevice(*asked);
  for (const device::DeviceInfo& info : devices) {
    if (info.device == Device::kCpu || !info.available) continue;
    if (wanted == Device::kAuto || wanted == info.device) return info;
  }
  Fail(ErrorKind::kUsage, "there is nothing to compare the CPU with: {}", devices.front().description);
}

class Selftest {
 public:
  Selftest(const Pipeline& cpu, const Pipeline& device, const SelftestOptions& options,
           const CancelFlag& cancel, SelftestResult& result)
      : cpu_(cpu),
        device_(device),
        options_(options),
        cancel_(cancel),
        result_(result),
        runs_(cpu.edits() ? 6 : 3) {}

  void Run() {
    GenerateRequest request;
    request.prompt = "a red circle on a blue background";
    request.steps = options_.steps.value_or(4);
    if (!options_.size.empty()) std::tie(request.width, request.height) = ParseSize(options_.size);
    const Picture drawn = Compare("text to picture", request);
    if (!cpu_.edits()) return;
    request.prompt = "make the circle green";
    request.input_images = {drawn.image()};
    Compare("edit", request);
  }

 private:
  // Returns the CPU's picture.
  Picture Compare(const std::string& what, const GenerateRequest& request) {
    const ScratchFolder folder(std::filesystem::temp_directory_path(), "qwen-image-selftest-");
    record::RunWriter recorder(folder.path(), record::CheckpointSelection(kLevel));
    const auto [on_cpu, cpu_seconds] = Draw(cpu_, request, &recorder, what + ", on the CPU");
    recorder.Finish({.prompt = on_cpu.prompt,
                     .negative_prompt = on_cpu.negative_prompt,
                     .width = on_cpu.width,
                     .height = on_cpu.height,
                     .steps = on_cpu.steps,
                     .cfg = on_cpu.cfg,
                     .seed = on_cpu.seed},
                    cpu_.threads(), "cpu");
    const record::ReferenceRun reference(folder.path());
    const std::string name(NameOf(result_.device.device));
    compare::RunChecker checker(reference, record::CheckpointSelection(kLevel), {"*"}, nullptr);
    Draw(device_, request, &checker, fmt::format("{}, on {}, each stage on the CPU's tensors", what, name));
    result_.Add(checker.comparison());
    const auto [on_device, device_seconds] =
        Draw(device_, request, nullptr, fmt::format("{}, on {} alone", what, name));
    result_.Add({what,
                 compare::CompareImages(compare::ToFloatImage(on_cpu.image()),
                                        compare::ToFloatImage(on_device.image()), 255),
                 cpu_seconds, device_seconds});
    return on_cpu;
  }

  std::pair<Picture, double> Draw(const Pipeline& pipeline, const GenerateRequest& request,
                                  CheckpointSink* sink, const std::string& what) {
    const bool silent = options_.quiet || options_.json;
    ++run_;
    if (!silent) Print(stderr, "[{}/{}] {}\n", run_, runs_, what);
    // Lines for every step would bury the table; a bar goes away.
    const auto style = ProgressPrinter::StyleFor(silent);
    ProgressPrinter progress(style == ProgressPrinter::Style::kBar ? style : ProgressPrinter::Style::kSilent,
                             "");
    const auto start = std::chrono::steady_clock::now();
    Picture picture =
        pipeline.Generate(request, {.on_progress = [&](const Progress& p) { progress.Update(p); },
                                    .cancel = &cancel_,
                                    .checkpoints = sink});
    return {std::move(picture),
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
  }

  const Pipeline& cpu_;
  const Pipeline& device_;
  const SelftestOptions& options_;
  const CancelFlag& cancel_;
  SelftestResult& result_;
  int run_ = 0, runs_;
};

int Run(const SelftestOptions& o, const CancelFlag& cancel) {
  SelftestResult result{.device = DeviceToTest(o.machine.device)};
  const ModelFiles model = FindModel(o.files);
  result.model = ModelName(model);
  result.precision = o.machine.precision.value_or(Precision::kExact);
  const Pipeline cpu(model,
                     {.threads = o.machine.threads, .precision = Precision::kExact, .device = Device::kCpu});
  const Pipeline device(
      model, {.threads = o.machine.threads, .precision = result.precision, .device = result.device.device});
  Selftest(cpu, device, o, cancel, result).Run();
  result.weights_note = WeightsNote(device);
  result.weights = WeightsJson(device);
  if (o.json) {
    Print(stdout, "{}\n", SelftestJson(result).dump(1));
  } else {
    Print(stdout, "{}", SelftestText(result, TextStyle::ForStandardOutput()));
  }
  return result.passed() ? 0 : 1;
}

OptionList OptionsOf(SelftestOptions& o) {
  Option device = DeviceOption(o.machine);
  device.help = "The device to compare with the CPU: gpu or mlx-cpu (default: the first that is there)";
  return OptionList{
             device,
             NamedOption("--precision", o.machine.precision,
                         "exact (the default): fp32, to be equal to the CPU's; fast: bf16, as pictures are "
                         "usually drawn on a GPU, within wider limits")} +
         ModelOptionList(o.files) +
         OptionList{
             {.names = "-s,--size",
              .target = &o.size,
              .help = "WIDTHxHEIGHT of the pictures (default: the model's)"},
             {.names = "--steps",
              .target = &o.steps,
              .help = "Denoising steps (default: 4)",
              .range = {{1, 1000}}},
             InstructionSetOption(),
             ThreadsOption(o.machine.threads, "", "Threads of the CPU's run (default: all processors)"),
             {.names = "--json", .target = &o.json, .help = "Print one JSON object"},
             {.names = "-q,--quiet", .target = &o.quiet, .help = "No progress on stderr"}};
}

}  // namespace

Command SelftestCommand() {
  const auto o = std::make_shared<SelftestOptions>();
  return {
      .name = "selftest",
      .summary = "Draw on the CPU and on another device, and compare tensor by tensor",
      .options = OptionsOf(*o),
      .footer =
          "Draws a picture and an edit of it with the embedded model on the CPU, whose arithmetic is tested "
          "against the\nofficial pipeline, and on another device; compares every block of every stage, and "
          "the "
          "pictures.\n\n"
          "Examples:\n"
          "  qwen-image selftest\n"
          "  qwen-image selftest --device gpu --precision fast\n"
          "  qwen-image selftest --device mlx-cpu --size 64x64 --steps 2 --json\n\n"
          "Exit codes: 0 all is within its limits, 1 something is not, 2 wrong usage, or no other device.",
      .run = [o](const Session& session) { return Run(*o, session.cancel); }};
}

}  // namespace qwen_image::cli
