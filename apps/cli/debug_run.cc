#include "debug_run.h"

#include "core/fail.h"
#include "files/output_file.h"
#include "files/text.h"
#include "parity/report.h"
#include "print.h"

namespace qwen_image {
namespace {

void CheckRunId(const std::string& run_id) {
  if (run_id.empty() || run_id.front() == '.' || run_id.find('/') != run_id.npos) {
    Fail(ErrorKind::kUsage, "{} is not a run id: a plain folder name is expected", Quoted(run_id));
  }
}

template <typename T>
void TakeOrMatch(std::optional<T>& own, const T& reference, const char* what) {
  if (!own) own = reference;
  if (*own != reference) {
    Fail(ErrorKind::kUsage,
         "the reference run has another {} ({} instead of {}); runs with different settings cannot be "
         "compared",
         what, reference, *own);
  }
}

}  // namespace

DebugRun::DebugRun(const DebugOptions& options) : options_(options) {
  CheckRunId(options_.run_id);
  const CheckpointLevel level = ParseCheckpointLevel(options_.checkpoints);
  recorder_ = std::make_unique<RunRecorder>(OwnFolder(), level);
  std::error_code error;
  if (std::filesystem::exists(ReferenceFolder() / "manifest.json", error)) {
    reference_.emplace(ReferenceFolder());
    checker_ = std::make_unique<RunChecker>(*reference_, level, options_.substitute, recorder_.get());
  } else if (!options_.substitute.empty()) {
    Fail(ErrorKind::kUsage, "--substitute needs a reference run in {}", ReferenceFolder().string());
  }
}

void DebugRun::FillFromReference(GenerateOptions& o) const {
  if (!reference_) return;
  const RunSettings& s = reference_->settings();
  std::optional<std::string> prompt;
  if (o.has_prompt) prompt = o.prompt;
  TakeOrMatch(prompt, s.prompt, "prompt");
  o.prompt = *prompt;
  o.has_prompt = true;
  if (s.negative_prompt) TakeOrMatch(o.negative_prompt, *s.negative_prompt, "negative prompt");
  if (!o.size.empty()) std::tie(o.width, o.height) = ParseSize(o.size);
  o.size.clear();
  TakeOrMatch(o.width, s.width, "width");
  TakeOrMatch(o.height, s.height, "height");
  TakeOrMatch(o.steps, s.steps, "number of steps");
  TakeOrMatch(o.cfg, s.cfg, "cfg");
  std::optional<std::string> seed;
  if (!o.seed.empty()) seed = o.seed;
  TakeOrMatch(seed, std::to_string(s.seed), "seed");
  o.seed = *seed;
  TakeOrMatch(o.max_sequence_length, s.max_sequence_length, "maximum sequence length");
}

CheckpointSink* DebugRun::sink() {
  return checker_ ? static_cast<CheckpointSink*>(checker_.get()) : recorder_.get();
}

bool DebugRun::Finish(const Picture& picture, const GenerateOptions& options, int threads) {
  recorder_->Finish({picture.prompt, picture.negative_prompt, picture.width, picture.height, picture.steps,
                     picture.cfg, picture.seed, options.MaxSequenceLength()},
                    options_.checkpoints, threads);
  if (!checker_) {
    if (!options.quiet)
      Print(stderr, "tensors saved in {}; no reference in {} to compare with\n", OwnFolder().string(),
            ReferenceFolder().string());
    return true;
  }
  const Comparison comparison = checker_->comparison();
  const std::string report = ReportJson(comparison).dump(1) + "\n";
  OutputFile file(OwnFolder() / "report.json");
  file.Write(report.data(), report.size());
  file.Commit();
  if (!options.quiet || !comparison.passed()) Print(stderr, "{}", ReportText(comparison));
  return comparison.passed();
}

}  // namespace qwen_image
