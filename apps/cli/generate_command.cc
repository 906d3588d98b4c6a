// qwen-image generate and edit: from options to picture files.
#include "generate_command.h"

#include <chrono>
#include <memory>

#include "cache_folder.h"
#include "checkpoint_list.h"
#include "command.h"
#include "core/fail.h"
#include "debug_run.h"
#include "device_report.h"
#include "draw/opened_model.h"
#include "files/output_file.h"
#include "files/picture_file.h"
#include "generate_jobs.h"
#include "generate_report.h"
#include "many_machines.h"
#include "model_options.h"
#include "picture_record.h"
#include "print.h"
#include "profile_report.h"
#include "progress.h"
#include "weights/model_name.h"

namespace qwen_image::cli {
namespace {

using Clock = std::chrono::steady_clock;
const Clock::time_point kProgramStart = Clock::now();

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::filesystem::path PromptCacheOf(const GenerateOptions& o) {
  if (o.no_prompt_cache) return {};
  return o.prompt_cache.empty() ? PromptCacheFolder().value_or("") : o.prompt_cache;
}

// A cache that cannot be used does not stop a run, but a user that named a folder should hear of it.
void CheckNamedCache(const GenerateOptions& o) {
  if (o.prompt_cache.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(o.prompt_cache, error);
  try {
    CheckWritable(o.prompt_cache / "probe");
  } catch (const Error& problem) {
    Print(stderr, "note: prompts are not kept: {}\n", problem.message());
  }
}

// A picture of a batch that an earlier, killed run has finished.
bool KeepDrawn(const Job& job, const std::string& run_id, const GenerateOptions& options) {
  Json record = RecordOfDrawn(job.output, run_id);
  if (record.is_null()) return false;
  if (options.json) {
    record["file"] = job.output.string();
    record["already_drawn"] = true;
    Print(stdout, "{}\n", draw::RecordText(record));
  } else if (!options.quiet) {
    Print(stdout, "{}: already drawn\n", job.output.string());
  }
  return true;
}

// Before the model is loaded.
void RefuseUnwatchable(const GenerateRequest& request) {
  const char* option = request.step_cache > 0          ? "--step-cache"
                       : request.resume_folder.empty() ? nullptr
                                                       : "--resume-dir";
  if (option)
    Fail(ErrorKind::kUsage, "--debug and --trace watch every step; leave out {}, which skips some", option);
}

// The size is the one that was drawn at, which the tensors have.
record::RunSettings SettingsOf(const Picture& p, const GenerateOptions& o,
                               const std::string& pipeline_class) {
  return {.prompt = p.prompt,
          .negative_prompt = p.negative_prompt,
          .width = p.source ? p.source->working_width : p.width,
          .height = p.source ? p.source->working_height : p.height,
          .steps = p.steps,
          .sigmas = o.request.sigmas,
          .cfg = p.cfg,
          .seed = p.seed,
          .max_sequence_length = o.request.max_sequence_length,
          .pipeline = pipeline_class,
          .strength = p.strength};
}

Picture DrawWatched(const Pipeline& pipeline, const GenerateRequest& request, ProgressPrinter& progress,
                    StartSeconds& start, DebugRun& debug, Profile& profile, const GenerateOptions& options,
                    const CancelFlag& cancel) {
  const auto on_progress = [&](const Progress& p) {
    if (p.stage == Progress::Stage::kDenoise && !start.start_to_first_step)
      start.start_to_first_step = SecondsSince(kProgramStart);
    progress.Update(p);
  };
  try {
    return pipeline.Generate(request, {.on_progress = on_progress,
                                       .cancel = &cancel,
                                       .checkpoints = debug.sink(),
                                       .on_note = [&](const std::string& note) { progress.Note(note); },
                                       .profile = options.profile.empty() ? nullptr : &profile});
  } catch (const Error& error) {
    progress.Clear();
    if (error.kind() != ErrorKind::kInterrupted) debug.ReportUnfinished(options, pipeline);
    throw;
  }
}

void WriteDrawn(const Job& job, const Image& image, const GenerateOptions& options, const PictureText& text) {
  const EncodedAs as = {.format = FormatOfFile(job.output).value_or(PictureFormat::kPng),
                        .quality = static_cast<int>(options.output_compression.value_or(kDefaultQuality))};
  WritePicture(job.output, image, as, text);
}

// --only: one component on the reference's inputs. A picture is written only if a name was given for it.
bool RunOnly(const Pipeline& pipeline, const JobPlan& plan, const std::string& component, DebugRun& debug,
             const GenerateOptions& options, const CancelFlag& cancel) {
  const Job& job = plan.jobs.front();
  std::optional<Image> picture;
  try {
    picture = draw::RunComponent(pipeline, ParseComponent(component), plan.RequestOf(job),
                                 ReferenceInputs(*debug.reference()),
                                 {.on_progress = {}, .cancel = &cancel, .checkpoints = debug.sink()});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInterrupted) debug.ReportUnfinished(options, pipeline);
    throw;
  }
  if (picture && !options.output.empty()) WriteDrawn(job, *picture, options, {});
  return debug.Finish(debug.reference()->settings(), options, pipeline);
}

// What the model's name stands for, where nothing else says it.
void TakeDefaultsOfName(GenerateOptions& options) {
  const NamedDefaults defaults = DefaultsOfName(options.model);
  GenerateRequest& request = options.request;
  if (!request.steps && request.sigmas.empty()) request.steps = defaults.steps;
  if (!request.cfg) request.cfg = defaults.cfg;
}

}  // namespace

int Draw(GenerateOptions options, const Session& session) {
  if (const std::optional<int> code = RunOnMachines(options.machine.machines, session)) return *code;
  const DebugOptions& debug_options = session.debug;
  const CancelFlag& cancel = session.cancel;
  if (debug_options.list_checkpoints) return ListCheckpoints(options, debug_options, cancel);
  // 1. Collect the settings: the command line, then the picture or the reference run to repeat.
  DebugRun debug(debug_options);
  if (debug.reference()) FillFromReference(*debug.reference(), options);
  if (!options.from.empty()) FillFromPicture(options.from, options);
  TakeDefaultsOfName(options);
  if (options.edit && options.Files("input_images").empty())
    Fail(ErrorKind::kUsage, "nothing to edit: give a picture with --input-image");
  const auto print_note = [&](const std::string& note) {
    if (!options.quiet) Print(stderr, "note: {}\n", note);
  };
  const JobPlan plan = PlanJobs(options, print_note);
  const std::vector<Job>& jobs = plan.jobs;
  if (jobs.empty()) {
    print_note(
        fmt::format("--shard {}: there are fewer pictures than machines, none is drawn here", options.shard));
    return 0;
  }
  if (debug.on() && jobs.size() != 1)
    Fail(ErrorKind::kUsage, "--debug and --trace watch one picture; leave out --count and --prompts");
  if (debug.on()) RefuseUnwatchable(options.request);

  if (options.json && IsStandardOutput(jobs.front().output))
    Fail(ErrorKind::kUsage, "--json and the picture cannot both go to stdout");

  if (!options.profile.empty()) CheckWritable(options.profile);

  // 2. Load the model and check all requests before the first is drawn.
  CheckNamedCache(options);
  const ModelFiles model = FindModel(options.model, options.quiet);
  const Clock::time_point load_start = Clock::now();
  const Pipeline pipeline(model, options.machine.ForPipeline(PromptCacheOf(options), session.machines));
  const double load_seconds = SecondsSince(load_start);
  NoteTransparent(plan, pipeline, print_note);
  if (!options.profile.empty()) CheckCanBeProfiled(pipeline);
  for (const Job& job : jobs) pipeline.Check(plan.RequestOf(job));
  debug.Watch(pipeline);
  if (!debug_options.only.empty())
    return RunOnly(pipeline, plan, debug_options.only, debug, options, cancel) ? 0 : 1;

  if (const std::string note = WeightsNote(pipeline); !note.empty() && !options.quiet)
    Print(stderr, "note: weights on {}: {}\n", NameOf(pipeline.device()), note);

  // 3. Draw and write.
  bool passed = true;
  Profile profile;  // of all pictures
  const auto mark = options.no_source_mark ? draw::SourceMark::kLeftOut : draw::SourceMark::kWritten;
  const auto style = ProgressPrinter::StyleFor(options.quiet);
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Job& job = jobs[i];
    const GenerateRequest request = plan.RequestOf(job);
    const bool has_run_id = plan.keeps_drawn || !options.request.resume_folder.empty();
    const std::string run_id = has_run_id ? pipeline.RunId(request) : "";
    if (plan.keeps_drawn && KeepDrawn(job, run_id, options)) continue;
    ProgressPrinter progress(style, jobs.size() > 1 ? fmt::format("[{}/{}] ", i + 1, jobs.size()) : "");
    StartSeconds start{.load = load_seconds, .start_to_first_step = {}};
    const Picture picture = DrawWatched(pipeline, request, progress, start, debug, profile, options, cancel);
    if (i > 0) start.start_to_first_step.reset();
    progress.Clear();
    Json record = PictureRecord(picture, request, options, ModelName(model), pipeline);
    if (!run_id.empty()) record[kRunKey] = run_id;
    WriteDrawn(job, picture.image(), options, draw::FileText(record, mark));
    RemoveResumeState(picture);
    if (options.json) {
      PrintJson(job, picture, record, start, pipeline);
    } else if (!options.quiet) {
      PrintSummary(job, picture, pipeline);
    }
    passed = debug.Finish(SettingsOf(picture, options, draw::ModelOf(pipeline).model->PipelineClass(request)),
                          options, pipeline);
  }
  if (!options.profile.empty()) WriteProfile(options.profile, profile);
  return passed ? 0 : 1;
}

namespace {

Command DrawingCommand(bool edit) {
  const auto options = std::make_shared<GenerateOptions>();
  options->edit = edit;
  return {.options = GenerateOptionList(*options),
          .run = [options](const Session& session) { return Draw(*options, session); },
          .draws = true,
          .many_machines = true};
}

}  // namespace

Command GenerateCommand() {
  Command command = DrawingCommand(false);
  command.name = "generate";
  command.summary = "Draw a picture from a text";
  command.footer =
      "Examples:\n"
      "  qwen-image generate \"a red circle on a blue background\" -o circle.png\n"
      "  qwen-image generate \"two green stars on a white background\" --count 4 --seed 7 -o stars.png\n"
      "  qwen-image generate \"a cat\" --model qwen-image-2.1:turbo-q4 -o cat.png\n"
      "  qwen-image generate \"a cat\" --model ~/models/Qwen-Image-2.1-Turbo -o cat.png\n"
      "  qwen-image generate \"a cat\" --model ~/models/Qwen-Image --size 1328x1328 --steps 30\n"
      "  qwen-image generate \"a cat\" --model ~/models/Qwen-Image --transformer qwen-image-Q4_K_M.gguf\n"
      "  qwen-image generate \"a cat\" --model ~/models/Qwen-Image --lora "
      "Qwen-Image-Lightning-4steps.safetensors\n"
      "  qwen-image generate \"a green star\" --init-image circle.png --strength 0.7 -o star.png\n"
      "  qwen-image generate \"a white heart\" --init-image circle.png --mask mask.png -o heart.png\n"
      "  qwen-image generate --prompts prompts.txt -o batch.png\n"
      "  qwen-image generate --from circle.png --steps 8 -o again.png";
  return command;
}

Command EditCommand() {
  Command command = DrawingCommand(true);
  command.name = "edit";
  command.summary = "Change a picture as a text says";
  command.footer =
      "Examples:\n"
      "  qwen-image edit \"make the circle green\" --input-image circle.png -o green.png\n"
      "  qwen-image edit \"make the sky red\" -i photo.jpg --model ~/models/Qwen-Image-Edit-2511 "
      "--keep-size\n"
      "  qwen-image edit \"the cat of Picture 1 on the sofa of Picture 2\" -i cat.jpg -i sofa.jpg --model "
      "~/models/Qwen-Image-Edit-2509\n"
      "  qwen-image edit \"a hat\" -i photo.jpg --mask head.png --model ~/models/Qwen-Image-Edit\n"
      "  qwen-image edit \"more of the beach\" -i photo.jpg --outpaint 256,0,256,0 --model "
      "~/models/Qwen-Image-Edit-2511";
  return command;
}

}  // namespace qwen_image::cli
