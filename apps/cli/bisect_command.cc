// qwen-image bisect: runs the model as often as the search asks for, and writes the repro folder.

#include <memory>

#include "command.h"
#include "core/fail.h"
#include "debug_run.h"
#include "draw/opened_model.h"
#include "families/checkpoint_names.h"
#include "files/text.h"
#include "generate_jobs.h"
#include "model_options.h"
#include "parity/compare/bisect.h"
#include "parity/report/repro.h"
#include "print.h"

namespace qwen_image::cli {
namespace {

struct BisectOptions {
  std::string reference;        // a run's folder, or the name of a run in --artifacts
  std::filesystem::path repro;  // empty: beside the reference
  bool no_repro = false;
  GenerateOptions generate;  // also --json and --quiet
};

std::filesystem::path FindReference(const std::string& given, const std::filesystem::path& artifacts) {
  std::error_code error;
  for (const std::filesystem::path& folder :
       {std::filesystem::path(given), std::filesystem::path(given) / "ref", artifacts / given / "ref"}) {
    if (std::filesystem::exists(folder / "manifest.json", error)) return folder;
  }
  Fail(ErrorKind::kBadInput,
       "{} is not a reference run: neither it, nor its folder ref, nor {} holds a manifest.json",
       Quoted(given), (artifacts / given / "ref").string());
}

// The reference's tensors, of the transformer's steps only one.
class StepInputs : public ReferenceInputs {
 public:
  StepInputs(const record::ReferenceRun& reference, std::optional<int64_t> step)
      : ReferenceInputs(reference), step_(step) {}
  std::optional<Tensor> Floats(const std::string& checkpoint) const override {
    if (step_ && checkpoint.starts_with("packed_latents_step") &&
        checkpoint != fmt::format("packed_latents_step{}", *step_))
      return std::nullopt;
    return ReferenceInputs::Floats(checkpoint);
  }

 private:
  std::optional<int64_t> step_;
};

class Runner {
 public:
  Runner(const Pipeline& pipeline, const GenerateRequest& request, const record::ReferenceRun& reference,
         bool quiet, const CancelFlag& cancel)
      : pipeline_(pipeline), request_(request), reference_(reference), quiet_(quiet), cancel_(cancel) {}

  compare::Comparison operator()(const compare::BisectPlan& plan) const {
    if (!quiet_)
      Print(stderr, "running {}{} …\n", plan.component.empty() ? "the pipeline" : plan.component,
            plan.isolated ? ", each operation on the reference's inputs" : "");
    // An operation stands alone only if what enters its block is substituted, too.
    const record::CheckpointSelection asked(plan.checkpoints),
        watched(plan.isolated ? "blocks," + plan.checkpoints : plan.checkpoints);
    compare::RunChecker checker(reference_, watched,
                                plan.isolated ? std::vector<std::string>{"*"} : std::vector<std::string>{},
                                nullptr);
    checker.LimitTo(plan.component);
    const GenerateHooks hooks{.on_progress = {}, .cancel = &cancel_, .checkpoints = &checker};
    try {
      Run(plan, hooks);
    } catch (const Error& error) {
      // A picture of NaN is no picture, but the comparison has what is needed to find where they begin.
      if (error.kind() == ErrorKind::kInterrupted || !checker.comparison().first_divergence()) throw;
    }
    compare::Comparison comparison = checker.comparison();
    std::erase_if(comparison.tensors,
                  [&](const compare::TensorComparison& t) { return !asked.Contains(t.name); });
    return comparison;
  }

 private:
  void Run(const compare::BisectPlan& plan, const GenerateHooks& hooks) const {
    if (plan.component.empty()) {
      pipeline_.Generate(request_, hooks);
    } else {
      draw::RunComponent(pipeline_, ParseComponent(plan.component), request_,
                         StepInputs(reference_, plan.step), hooks);
    }
  }

  const Pipeline& pipeline_;
  const GenerateRequest& request_;
  const record::ReferenceRun& reference_;
  bool quiet_;
  const CancelFlag& cancel_;
};

// The weights of the module that a checkpoint names.
std::vector<std::string> WeightsOf(const Pipeline& pipeline, const std::string& component,
                                   const std::string& operation) {
  if (component.empty()) return {};
  const WeightStore* store = draw::ModelOf(pipeline).model->StoreOf(ParseComponent(component));
  const std::string module(ModuleOf(operation));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : store->tensors()) {
    if (name.starts_with(module + ".")) names.push_back(name);
  }
  return names;
}

int Run(BisectOptions options, const DebugOptions& debug, const CancelFlag& cancel) {
  // 1. The reference and a model to run.
  const std::filesystem::path folder = FindReference(options.reference, debug.artifacts);
  const record::ReferenceRun reference(folder);
  GenerateOptions& generate = options.generate;
  generate.edit = reference.settings().edits();
  FillFromReference(reference, generate);
  if (generate.request.step_cache > 0 || !generate.request.resume_folder.empty())
    Fail(ErrorKind::kUsage, "bisect looks at every step; leave out --step-cache and --resume-dir");
  const GenerateRequest request = MakeRequest(generate, [](const std::string&) {});
  const Pipeline pipeline(FindModel(generate.model), generate.machine.ForPipeline());
  pipeline.Check(request);

  // 2. Search.
  const bool silent = generate.quiet || generate.json;
  const compare::BisectResult result = compare::Bisect(Runner(pipeline, request, reference, silent, cancel));
  Json json = compare::BisectJson(result);
  std::string text = compare::BisectText(result);
  if (result.first_bad.empty()) {
    Print(stdout, "{}", generate.json ? json.dump(1) + "\n" : text);
    return reference.checkpoints().empty() ? 1 : 0;
  }

  // 3. The repro.
  if (!options.no_repro && !result.component.empty()) {
    const std::filesystem::path run = folder.filename() == "ref" ? folder.parent_path() : folder;
    const std::filesystem::path repro =
        options.repro.empty() ? run.parent_path() / (run.filename().string() + "-repro") : options.repro;
    const std::string artifacts = repro.has_parent_path() ? repro.parent_path().string() : ".";
    const std::string command = fmt::format(
        "qwen-image --artifacts {} --debug={} --only {} --checkpoints '{}' --substitute '*' {} {}{}{}",
        artifacts, repro.filename().string(), result.component, report::ReproOperation(result),
        generate.edit ? "edit" : "generate", ModelArguments(FindModel(generate.model)),
        generate.machine.device ? fmt::format(" --device {}", NameOf(*generate.machine.device)) : "",
        generate.machine.precision ? fmt::format(" --precision {}", NameOf(*generate.machine.precision))
                                   : "");
    report::WriteRepro(repro, reference, result,
                       WeightsOf(pipeline, result.component, report::ReproOperation(result)), command);
    json["repro"] = {{"folder", repro.string()}, {"command", command}};
    text += fmt::format("repro: {}\n  {}\n", repro.string(), command);
  }
  Print(stdout, "{}", generate.json ? json.dump(1) + "\n" : text);
  return 1;
}

}  // namespace

Command BisectCommand() {
  const auto o = std::make_shared<BisectOptions>();
  OptionList drawing = GenerateOptionList(o->generate);
  // What is there for pictures; a search writes none.
  std::erase_if(drawing, [](const Option& option) {
    return option.names == "-o,--output" || option.names == "--prompts" || option.names == "--from" ||
           option.names == "--count" || option.names == "--shard" || option.names == "--machines" ||
           option.names == "--split";
  });
  for (Option& option : drawing) {
    if (option.names == "--json") option.help = "Print the findings as JSON";
  }
  return {
      .name = "bisect",
      .summary = "Find the first operation where a run leaves a reference run",
      .options =
          OptionList{
              {.names = "reference",
               .target = &o->reference,
               .help = "The reference run: its folder, or its name in debug_artifacts (see --artifacts)",
               .required = true},
              {.names = "--repro",
               .target = &o->repro,
               .help = "Folder for the small repro (default: beside the reference)"},
              {.names = "--no-repro", .target = &o->no_repro, .help = "Write no repro"}} +
          drawing,
      .footer =
          "Prompt, size, steps, guidance and noise come from the reference. Exit code 0: no divergence, 1: "
          "found.\n\n"
          "Examples:\n"
          "  qwen-image bisect run\n"
          "  qwen-image bisect debug_artifacts/run/ref --model ~/models/Qwen-Image --json",
      .run = [o](const Session& session) { return Run(*o, session.debug, session.cancel); }};
}

}  // namespace qwen_image::cli
