#include "parity/compare/checker.h"

#include <algorithm>

#include "core/glob.h"
#include "parity/compare/tensor.h"

namespace qwen_image::compare {
namespace {

// The noise is an input of the run, not a result: generators differ between devices and frameworks.
constexpr std::string_view kNoise = "initial_latents_packed";

TensorSource SourceOfView(const CheckpointView& view) {
  return std::visit([&](const auto* data) { return SourceOf(data, view.shape); }, view.data);
}

}  // namespace

RunChecker::RunChecker(const record::ReferenceRun& reference, record::CheckpointSelection selection,
                       std::vector<std::string> substitute, record::RunWriter* recorder)
    : reference_(reference),
      selection_(std::move(selection)),
      reference_selection_(record::RecordedSelection(reference.tensors().manifest())),
      substitute_(std::move(substitute)),
      recorder_(recorder),
      mode_(substitute_.empty() ? ErrorMode::kAccumulated : ErrorMode::kIsolated) {
  if (recorder_) recorder_->SetSubstituted(substitute_);
}

void RunChecker::LimitTo(const std::string& component) {
  component_ = component;
  if (recorder_) recorder_->LimitTo(component);
}

bool RunChecker::Compares(std::string_view name) const {
  if (!component_.empty() && !record::IsComputedBy(component_, name)) return false;
  return selection_.Contains(name) &&
         (reference_selection_ ? reference_selection_->Contains(name) : reference_.Has(std::string(name)));
}

bool RunChecker::Wants(std::string_view name) const {
  return Compares(name) || (recorder_ && recorder_->Wants(name)) ||
         (Substitutes(name) && reference_.Has(std::string(name)));
}

bool RunChecker::Substitutes(std::string_view name) const {
  return name == kNoise || std::any_of(substitute_.begin(), substitute_.end(),
                                       [&](const std::string& glob) { return MatchesGlob(glob, name); });
}

void RunChecker::OnCheckpoint(const std::string& name, const CheckpointView& view) {
  // The run's own tensor is saved before the reference's may replace it.
  if (recorder_ && recorder_->Wants(name)) recorder_->OnCheckpoint(name, view);
  const record::TensorInfo* want = reference_.tensors().Find(name);
  if (Compares(name)) {
    if (!want) {
      extra_.push_back(name);
    } else {
      Compare(*want, view);
    }
  }
  // A tensor may be substituted without being compared: --checkpoints chooses only what is compared.
  if (want && Substitutes(name)) TakeOver(*want, view);
}

void RunChecker::Compare(const record::TensorInfo& want, const CheckpointView& view) {
  TensorComparison& compared = compared_[want.name] =
      CompareTensor(want.name, SourceOf(reference_.tensors(), want), SourceOfView(view),
                    [&](const TensorStats&) { return LiveCriterion(want.name, mode_); });
  if (want.name != kNoise || compared.passed || !compared.problem.empty()) return;
  compared.passed = true;
  notes_.emplace_back(
      "the reference's noise is not what its seed gives here (another generator or device); the run goes on "
      "from it");
}

void RunChecker::TakeOver(const record::TensorInfo& want, const CheckpointView& view) const {
  float* const* data = std::get_if<float*>(&view.data);
  if (!data || want.shape != view.shape || !want.is_float) return;  // Compare reports such differences
  const std::vector<float> values = reference_.tensors().ReadAll(want);
  std::copy(values.begin(), values.end(), *data);
}

Comparison RunChecker::comparison() const {
  const record::TensorSet& tensors = reference_.tensors();
  Comparison c{.ref_path = tensors.path(),
               .run_path = recorder_ ? recorder_->folder() : std::filesystem::path(),
               .ref_manifest = tensors.manifest(),
               .extra = extra_};
  c.notes = notes_;
  for (const record::TensorInfo& tensor : tensors.tensors()) {
    if (const auto found = compared_.find(tensor.name); found != compared_.end()) {
      c.tensors.push_back(found->second);
    } else if (Compares(tensor.name)) {
      c.missing.push_back(tensor.name);
    }
  }
  return c;
}

}  // namespace qwen_image::compare
