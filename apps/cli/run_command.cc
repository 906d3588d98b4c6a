// qwen-image run: generate and edit with a model by its short name, which is downloaded if it is not here.
#include <memory>

#include "catalogue/local.h"
#include "command.h"
#include "core/fail.h"
#include "debug_options.h"
#include "device/available.h"
#include "files/text.h"
#include "generate_command.h"
#include "generate_jobs.h"
#include "hub/environment.h"
#include "named_model.h"
#include "options/field.h"
#include "print.h"

namespace qwen_image::cli {
namespace {

struct RunCommandOptions {
  std::string name;
  bool yes = false;
  GenerateOptions generate;
};

// The options of `generate`, and what `edit` has beyond them; the model is named already.
OptionList DrawingOptions(GenerateOptions& o) {
  OptionList list = GenerateOptionList(o);
  std::erase_if(list, [](const Option& option) { return option.names == "-m,--model"; });
  o.edit = true;
  for (Option& option : GenerateOptionList(o)) {
    if (option.names == "-i,--input-image") list.push_back(std::move(option));
  }
  o.edit = false;
  return list;
}

void Fetch(const catalogue::Entry& entry, const RunCommandOptions& o, const CancelFlag& cancel) {
  hub::PullRequest request{.cache = hub::CacheFolder()};
  request.server = hub::ServerFrom();
  const auto otherwise = [&](uint64_t bytes) {
    return fmt::format(
        "{} is not downloaded ({}; licence: {}); say --yes to download it, or type qwen-image pull {}",
        entry.name, catalogue::Gigabytes(bytes), entry.licence, entry.name);
  };
  const bool quiet = o.generate.quiet;
  if (!o.yes && !CanAsk())
    Fail(ErrorKind::kUsage, "{}", otherwise(catalogue::StatusOf(entry, request.cache, {}).missing_bytes));
  const NamedDownload done =
      DownloadNamed(entry, request, quiet, cancel, [&](const catalogue::DownloadPlan& plan) {
        if (o.yes) return;
        NeedConsent(fmt::format("{} is not downloaded.\n  size     {} of {} are missing\n  licence  {}\n"
                                "  to       {}\nDownload it?",
                                entry.name, catalogue::Gigabytes(plan.missing_bytes),
                                catalogue::Gigabytes(plan.bytes), entry.licence, request.cache.string()),
                    otherwise(plan.missing_bytes), cancel);
      });
  if (!quiet) Print(stderr, "{}\n", DownloadText(entry, done));
}

void CheckIsThere(const char* option, const std::filesystem::path& path) {
  std::error_code error;
  if (!path.empty() && !std::filesystem::exists(path, error))
    Fail(ErrorKind::kBadInput, "{}: there is no file or folder {}", option, Quoted(path.string()));
}

// What is wrong with the command should not be said after hours of downloading.
void CheckBeforeDownload(const GenerateOptions& o, const DebugOptions& debug) {
  CheckIsThere("--transformer", o.model.transformer);
  CheckIsThere("--text-encoder", o.model.text_encoder);
  CheckIsThere("--vision-encoder", o.model.vision_encoder);
  CheckIsThere("--vae", o.model.vae);
  CheckIsThere("--tokenizer", o.model.tokenizer);
  for (const LoraFile& lora : o.model.loras) CheckIsThere("--lora", lora.path);
  if (o.machine.device) device::ResolveDevice(*o.machine.device);
  options::CheckRanges(o.request);
  if (o.from.empty() && debug.run_id.empty()) PlanJobs(o, [](const std::string&) {});
}

int Run(RunCommandOptions o, const Session& session) {
  o.generate.edit = !o.generate.Files("input_images").empty();
  o.generate.model.model = o.name;
  std::error_code error;
  const bool is_path = std::filesystem::exists(std::filesystem::symlink_status(o.name, error));
  // What cannot be a path or OWNER/NAME is looked up even if no name is spelled so: the refusal suggests
  // some.
  if (!is_path && o.name.find('/') == o.name.npos) {
    const std::filesystem::path cache = hub::CacheFolder();
    const NamedModel model = ChooseByName(o.name, cache, o.generate.quiet);
    if (!catalogue::StatusOf(*model.entry, cache, {}).here) {
      CheckBeforeDownload(o.generate, session.debug);
      Fetch(*model.entry, o, session.cancel);
    }
    o.generate.model.model = model.entry->name;
  }
  return Draw(std::move(o.generate), session);
}

}  // namespace

Command RunCommand() {
  const auto o = std::make_shared<RunCommandOptions>();
  return {
      .name = "run",
      .summary = "Draw with a model by its short name; it is downloaded first if it is not here",
      .options =
          OptionList{
              {.names = "name",
               .target = &o->name,
               .help = "FAMILY:TAG as `qwen-image list` shows it, or FAMILY alone for the one "
                       "that fits this machine; a path or OWNER/NAME as for --model",
               .required = true},
              {.names = "-y,--yes", .target = &o->yes, .help = "Download what is missing without asking"}} +
          DrawingOptions(o->generate),
      .footer =
          "Examples:\n"
          "  qwen-image list\n"
          "  qwen-image run qwen-image-2.1 \"a lighthouse in fog, oil painting\"\n"
          "  qwen-image run qwen-image-2512:lightning-q4 \"a cat\" --size 1328x1328 --yes\n"
          "  qwen-image run edit-2511 \"make it night\" --input-image photo.jpg -o night.png\n\n"
          "All options of generate and edit work. With --input-image a picture is edited, without one "
          "it is drawn.",
      .run = [o](const Session& session) { return Run(*o, session); },
      .draws = true,
      .many_machines = true};
}

}  // namespace qwen_image::cli
