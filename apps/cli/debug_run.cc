#include "debug_run.h"

#include <algorithm>

#include "core/fail.h"
#include "core/glob.h"
#include "draw/opened_model.h"
#include "files/numbers.h"
#include "files/output_file.h"
#include "files/text.h"
#include "options/text_form.h"
#include "parity/hints/causes.h"
#include "parity/report/text.h"
#include "parity/report/tools.h"
#include "print.h"

namespace qwen_image::cli {
namespace {

void CheckRunId(const std::string& run_id) {
  if (run_id.empty() || run_id.front() == '.' || run_id.find('/') != run_id.npos) {
    Fail(ErrorKind::kUsage, "{} is not a run id: a plain folder name is expected", Quoted(run_id));
  }
}

template <typename T>
const T& ValueOf(const T& value) {
  return value;
}
template <typename T>
const T& ValueOf(const std::optional<T>& value) {
  return *value;
}

// A setting that was not given is taken from the reference; one that was must be the same there.
template <typename Setting, typename Value>
void TakeOrMatch(const char* name, Setting& own, const Value& reference, const std::string& what,
                 GenerateOptions& o) {
  if (o.given.insert(name).second) own = reference;
  if (ValueOf(own) != reference)
    Fail(ErrorKind::kUsage,
         "the reference run has another {} ({} instead of {}); runs with different settings cannot be "
         "compared",
         what, reference, ValueOf(own));
}

std::optional<ValueRange> RangeIn(const record::ReferenceRun& reference, const std::string& name) {
  if (!reference.Has(name)) return std::nullopt;
  const NpyArray array = reference.Read(name);
  const auto* values = std::get_if<std::vector<float>>(&array.values);
  if (!values || values->empty()) return std::nullopt;
  const auto [min, max] = std::minmax_element(values->begin(), values->end());
  return ValueRange{*min, *max};
}

record::KnownRanges RangesFor(const Pipeline& pipeline, const record::ReferenceRun* reference) {
  if (reference) return [reference](std::string_view name) { return RangeIn(*reference, std::string(name)); };
  const Model& model = *draw::ModelOf(pipeline).model;
  return model.published_size() ? record::KnownRanges(model.vocabulary().checkpoints->known_range)
                                : record::KnownRanges();
}

// A name that fits nothing is a typing error. It is reported before a long run, not after it.
void CheckNamesExist(const record::ReferenceRun& reference, const DebugOptions& options) {
  const std::vector<std::string>& names = reference.checkpoints();
  for (const std::string& glob : options.substitute) {
    if (std::none_of(names.begin(), names.end(), [&](const std::string& n) { return MatchesGlob(glob, n); }))
      Fail(ErrorKind::kUsage, "--substitute {}: the reference holds no such checkpoint", Quoted(glob));
  }
  const record::CheckpointSelection selection(options.Checkpoints());
  if (std::none_of(names.begin(), names.end(), [&](const std::string& n) { return selection.Contains(n); })) {
    Fail(ErrorKind::kUsage, "--checkpoints {}: the reference holds none of them, nothing could be compared",
         Quoted(options.Checkpoints()));
  }
}

}  // namespace

DebugRun::DebugRun(const DebugOptions& options) : options_(options) {
  const record::CheckpointSelection selection(options_.Checkpoints());
  std::error_code error;
  if (!options_.run_id.empty()) {
    CheckRunId(options_.run_id);
    recorder_ = std::make_unique<record::RunWriter>(OwnFolder(), selection);
    if (std::filesystem::exists(ReferenceFolder() / "manifest.json", error)) {
      reference_.emplace(ReferenceFolder());
      CheckNamesExist(*reference_, options_);
      checker_ =
          std::make_unique<compare::RunChecker>(*reference_, selection, options_.substitute, recorder_.get());
      if (!options_.only.empty()) checker_->LimitTo(options_.only);
    }
  }
  const char* needy = !options_.substitute.empty() ? "--substitute"
                      : !options_.only.empty()     ? "--only"
                                                   : nullptr;
  if (needy && !reference_) {
    if (!recorder_) Fail(ErrorKind::kUsage, "{} needs a reference run: give --debug=RUN_ID too", needy);
    Fail(ErrorKind::kUsage, "{} needs a reference run in {}", needy, ReferenceFolder().string());
  }
}

void DebugRun::Watch(const Pipeline& pipeline) {
  if (options_.trace.empty()) return;
  tracer_ = std::make_unique<record::RunTracer>(*draw::ModelOf(pipeline).model->vocabulary().checkpoints,
                                                record::CheckpointSelection(options_.Checkpoints()),
                                                RangesFor(pipeline, reference()), sink());
}

namespace {

// The pictures that the reference started from lie beside its tensors.
void FillPictures(const record::ReferenceRun& reference, GenerateOptions& o) {
  const record::RunSettings& s = reference.settings();
  const std::filesystem::path& folder = reference.tensors().path();
  if (s.edits() != o.edit)
    Fail(ErrorKind::kUsage, "the reference run is of {} ({}); use the command {}",
         s.edits() ? "an edit" : "no edit", Printable(s.pipeline), s.edits() ? "edit" : "generate");
  if (o.Files("input_images").empty() && o.Files("init_image").empty()) {
    for (const std::string& name : s.images)
      o.files[s.edits() ? "input_images" : "init_image"].push_back(folder / name);
  }
  if (s.mask.empty()) return;
  if (o.Files("mask").empty()) o.files["mask"] = {folder / s.mask};
  o.request.blend = false;  // the official pipelines do not lay the result over the input
}

}  // namespace

void FillFromReference(const record::ReferenceRun& reference, GenerateOptions& o) {
  const record::RunSettings& s = reference.settings();
  GenerateRequest& own = o.request;
  FillPictures(reference, o);
  if (s.strength) TakeOrMatch("strength", own.strength, *s.strength, "strength", o);
  TakeOrMatch("prompt", own.prompt, s.prompt, "prompt", o);
  if (s.negative_prompt)
    TakeOrMatch("negative_prompt", own.negative_prompt, *s.negative_prompt, "negative prompt", o);
  if (!o.size.empty()) {
    std::tie(own.width, own.height) = ParseSize(o.size);
    o.given.insert({"width", "height"});
    o.size.clear();
  }
  TakeOrMatch("width", own.width, s.width, "width", o);
  TakeOrMatch("height", own.height, s.height, "height", o);
  TakeOrMatch("steps", own.steps, s.steps, "number of steps", o);
  if (o.given.insert("sigmas").second) own.sigmas = s.sigmas;
  if (own.sigmas != s.sigmas)
    Fail(ErrorKind::kUsage,
         "the reference run has other sigmas ({}); runs with different settings cannot be compared",
         s.sigmas.empty() ? "the model's own" : options::NumbersText(s.sigmas));
  TakeOrMatch("cfg", own.cfg, s.cfg, "cfg", o);
  TakeOrMatch("seed", own.seed, s.seed, "seed", o);
  TakeOrMatch("max_sequence_length", own.max_sequence_length, s.max_sequence_length,
              "maximum sequence length", o);
}

CheckpointSink* DebugRun::sink() {
  if (tracer_) return tracer_.get();
  if (checker_) return checker_.get();
  return recorder_.get();
}

bool DebugRun::Finish(const record::RunSettings& settings, const GenerateOptions& options,
                      const Pipeline& pipeline) {
  const bool healthy = FinishTrace(options);
  const bool agrees = !recorder_ || FinishComparison(settings, options, pipeline);
  return healthy && agrees;
}

void DebugRun::ReportUnfinished(const GenerateOptions& options, const Pipeline& pipeline) {
  FinishTrace(options);
  if (checker_ && !checker_->comparison().tensors.empty())
    FinishComparison(reference_->settings(), options, pipeline);
}

bool DebugRun::FinishTrace(const GenerateOptions& options) {
  if (!tracer_) return true;
  tracer_->WriteTrace(options_.trace);
  if (!options.quiet) {
    Print(stderr, "{}trace written to {}: open it in ui.perfetto.dev or chrome://tracing\n", tracer_->Table(),
          options_.trace.string());
  }
  if (!tracer_->healthy()) Print(stderr, "health: FAILED (NaN, infinity, or values far out of range)\n");
  return tracer_->healthy();
}

bool DebugRun::FinishComparison(const record::RunSettings& settings, const GenerateOptions& options,
                                const Pipeline& pipeline) {
  recorder_->Finish(settings, pipeline.threads(), std::string(NameOf(pipeline.device())));
  if (!checker_) {
    if (!options.quiet)
      Print(stderr, "tensors saved in {}; no reference in {} to compare with\n", OwnFolder().string(),
            ReferenceFolder().string());
    return true;
  }
  compare::Comparison comparison = checker_->comparison();
  if (!comparison.passed())
    hints::AddHints(comparison, reference_->tensors(), record::TensorSet::Open(OwnFolder()));
  const std::string report = report::ReportJson(comparison).dump(1) + "\n";
  OutputFile file(OwnFolder() / "report.json");
  file.Write(report.data(), report.size());
  file.Commit();
  if (!options.quiet || !comparison.passed()) Print(stderr, "{}", report::ReportText(comparison));
  return comparison.passed();
}

std::optional<Tensor> ReferenceInputs::Floats(const std::string& checkpoint) const {
  if (!reference_.Has(checkpoint)) return std::nullopt;
  const NpyArray array = reference_.Read(checkpoint);
  const auto* values = std::get_if<std::vector<float>>(&array.values);
  if (!values)
    Fail(ErrorKind::kBadInput, "the reference's {} holds {}, not floats", Quoted(checkpoint), array.dtype);
  Tensor tensor(array.shape);
  std::copy(values->begin(), values->end(), tensor.data());
  return tensor;
}

std::optional<std::vector<int64_t>> ReferenceInputs::Ids(const std::string& checkpoint) const {
  if (!reference_.Has(checkpoint)) return std::nullopt;
  NpyArray array = reference_.Read(checkpoint);
  auto* values = std::get_if<std::vector<int64_t>>(&array.values);
  if (!values)
    Fail(ErrorKind::kBadInput, "the reference's {} holds {}, not whole numbers", Quoted(checkpoint),
         array.dtype);
  return std::move(*values);
}

}  // namespace qwen_image::cli
