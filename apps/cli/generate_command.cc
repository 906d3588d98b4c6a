// qwen-image generate: from options to picture files.
#include "generate_command.h"

#include <sys/resource.h>

#include <chrono>

#include "core/fail.h"
#include "debug_run.h"
#include "files/png.h"
#include "files/text.h"
#include "generate_jobs.h"
#include "model_options.h"
#include "picture_record.h"
#include "print.h"
#include "progress.h"

namespace qwen_image {
namespace {

double PeakMemoryMegabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
}

// The summary must not end up inside a picture that goes to stdout.
bool IsStandardOutput(const std::filesystem::path& output) {
  return output == "/dev/stdout" || output == "/dev/fd/1" || output == "/proc/self/fd/1";
}

void PrintLoras(std::FILE* stream, const Pipeline& pipeline, const Picture& p) {
  for (const AppliedLora& lora : pipeline.loras()) {
    Print(stream, "  lora: {} × {}, {} of {} layers\n", Printable(lora.name), lora.scale, lora.layers,
          lora.total);
  }
  if (!pipeline.defaults().lightning) return;
  const Defaults& made_for = pipeline.defaults();
  const bool as_made = p.steps == made_for.steps && p.cfg == made_for.cfg;
  Print(stream, "  Lightning LoRA: {}{} steps, cfg {}\n", as_made ? "" : "made for ", made_for.steps,
        made_for.cfg);
  if (p.cfg > 1) {
    Print(stderr,
          "note: a Lightning LoRA needs no guidance: cfg {} takes twice the time and usually spoils the "
          "picture\n",
          p.cfg);
  }
}

void PrintSummary(const Job& job, const Picture& p, const Pipeline& pipeline) {
  std::FILE* stream = IsStandardOutput(job.output) ? stderr : stdout;
  if (p.prompt_truncated) {
    Print(stderr, "note: the prompt has {} tokens; the end was cut off (see --max-sequence-length)\n",
          p.prompt_tokens);
  }
  Print(stream, "{}: {}x{}, {} step{}, cfg {}, seed {}\n", job.output.string(), p.width, p.height, p.steps,
        p.steps == 1 ? "" : "s", p.cfg, p.seed);
  Print(stream, "  prompt {} + denoise {} ({}/step) + decode {}; peak memory {:.0f} MB\n",
        HumanSeconds(p.seconds.encode_prompt), HumanSeconds(p.seconds.denoise),
        HumanSeconds(p.seconds.denoise / static_cast<double>(p.steps)), HumanSeconds(p.seconds.decode),
        PeakMemoryMegabytes());
  PrintLoras(stream, pipeline, p);
}

void PrintJson(const Job& job, const Picture& p, Json record, double load_seconds, int threads) {
  record["file"] = job.output.string();
  record["prompt_tokens"] = p.prompt_tokens;
  record["prompt_truncated"] = p.prompt_truncated;
  record["threads"] = threads;
  record["seconds"] = {{"load", load_seconds},
                       {"encode_prompt", p.seconds.encode_prompt},
                       {"denoise", p.seconds.denoise},
                       {"decode", p.seconds.decode}};
  record["peak_memory_mb"] = PeakMemoryMegabytes();
  Print(stdout, "{}\n", RecordText(record));
}

RunSettings SettingsOf(const Picture& p, const GenerateOptions& o) {
  return {p.prompt, p.negative_prompt, p.width, p.height, p.steps, p.cfg, p.seed, o.MaxSequenceLength()};
}

Picture DrawWatched(const Pipeline& pipeline, const GenerateRequest& request, ProgressPrinter& progress,
                    DebugRun& debug, const GenerateOptions& options, const CancelFlag& cancel) {
  try {
    return pipeline.Generate(request, {.on_progress = [&](const Progress& p) { progress.Update(p); },
                                       .cancel = &cancel,
                                       .checkpoints = debug.sink()});
  } catch (const Error& error) {
    progress.Clear();
    if (error.kind() != ErrorKind::kInterrupted) debug.ReportUnfinished(options, pipeline.threads());
    throw;
  }
}

// --only: one component on the reference's inputs. A picture is written only if a name was given for it.
bool RunOnly(const Pipeline& pipeline, const Job& job, const std::string& component, DebugRun& debug,
             const GenerateOptions& options, const CancelFlag& cancel) {
  std::optional<std::vector<uint8_t>> pixels;
  try {
    pixels =
        RunComponent(pipeline, ParseComponent(component), job.request, ReferenceInputs(*debug.reference()),
                     {.on_progress = {}, .cancel = &cancel, .checkpoints = debug.sink()});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInterrupted) debug.ReportUnfinished(options, pipeline.threads());
    throw;
  }
  const RunSettings& settings = debug.reference()->settings();
  if (pixels && !options.output.empty()) WritePng(job.output, {settings.width, settings.height, *pixels}, {});
  return debug.Finish(settings, options, pipeline.threads());
}

}  // namespace

int RunGenerate(GenerateOptions options, const DebugOptions& debug_options, const CancelFlag& cancel) {
  // 1. Collect the settings: the command line, then the picture or the reference run to repeat.
  DebugRun debug(debug_options);
  if (debug.reference()) FillFromReference(*debug.reference(), options);
  if (!options.from.empty()) FillFromPicture(options.from, options);
  const std::vector<Job> jobs = PlanJobs(options);
  if (debug.on() && jobs.size() != 1)
    Fail(ErrorKind::kUsage, "--debug and --trace watch one picture; leave out --count and --prompts");

  if (options.json && IsStandardOutput(jobs.front().output))
    Fail(ErrorKind::kUsage, "--json and the picture cannot both go to stdout");

  // 2. Load the model and check all requests before the first is drawn.
  const ModelFiles model = FindModel(options.files);
  const auto load_start = std::chrono::steady_clock::now();
  const Pipeline pipeline(model, {.threads = options.threads,
                                  .check_memory = !options.ignore_memory,
                                  .precision = options.PrecisionInUse()});
  const double load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - load_start).count();
  for (const Job& job : jobs) pipeline.Check(job.request);
  debug.Watch(pipeline);
  if (!debug_options.only.empty())
    return RunOnly(pipeline, jobs.front(), debug_options.only, debug, options, cancel) ? 0 : 1;

  // 3. Draw and write.
  bool passed = true;
  const auto style = ProgressPrinter::StyleFor(options.quiet);
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Job& job = jobs[i];
    ProgressPrinter progress(style, jobs.size() > 1 ? fmt::format("[{}/{}] ", i + 1, jobs.size()) : "");
    const Picture picture = DrawWatched(pipeline, job.request, progress, debug, options, cancel);
    progress.Clear();
    const Json record = PictureRecord(picture, options, ModelName(model), pipeline.loras());
    WritePng(job.output, {picture.width, picture.height, picture.rgb}, PngText(record));
    if (options.json) {
      PrintJson(job, picture, record, load_seconds, pipeline.threads());
    } else if (!options.quiet) {
      PrintSummary(job, picture, pipeline);
    }
    passed = debug.Finish(SettingsOf(picture, options), options, pipeline.threads());
  }
  return passed ? 0 : 1;
}

}  // namespace qwen_image
