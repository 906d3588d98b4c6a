#include "parity/run_recorder.h"

#include <algorithm>

#include "core/fail.h"
#include "core/glob.h"
#include "files/npy.h"
#include "files/output_file.h"
#include "parity/compare.h"

namespace qwen_image {
namespace {

// An input of the run, not a result: generators differ between devices and frameworks.
constexpr std::string_view kNoise = "initial_latents_packed";

// Its manifest must not speak for the new run before that is done, and its tensors must not be taken for the
// new one's.
void RemoveEarlierRun(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> old = {folder / "manifest.json", folder / "report.json"};
  for (std::filesystem::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".npy") old.push_back(it->path());
  }
  for (const std::filesystem::path& path : old) std::filesystem::remove(path, error);
}

TensorSource SourceOfView(const CheckpointView& view) {
  return std::visit([&](const auto* data) { return SourceOf(data, view.shape); }, view.data);
}

}  // namespace

void RunRecorder::OnCheckpoint(const std::string& name, const CheckpointView& view) {
  const std::filesystem::path file = CheckpointFile(name);
  std::error_code error;
  if (checkpoints_.empty()) RemoveEarlierRun(folder_);
  std::filesystem::create_directories((folder_ / file).parent_path(), error);  // a failure shows when writing
  const bool is_float = std::holds_alternative<float*>(view.data);
  if (is_float) {
    WriteNpy(folder_ / file, std::get<float*>(view.data), view.shape);
  } else {
    WriteNpy(folder_ / file, std::get<const int64_t*>(view.data), view.shape);
  }
  checkpoints_.push_back({{"name", name},
                          {"file", file.string()},
                          {"shape", view.shape},
                          {"dtype", is_float ? "float32" : "int64"}});
}

// A component's run holds nothing of the others, whatever its level: it lists its checkpoints.
std::string RunRecorder::RecordedLevel() const {
  if (component_.empty()) return selection_.text();
  std::string names;
  for (const Json& entry : checkpoints_)
    names += (names.empty() ? "" : ",") + entry["name"].get<std::string>();
  return names;
}

void RunRecorder::Finish(const RunSettings& s, int threads, const std::string& device) {
  const bool guided = s.negative_prompt && s.cfg > 1;  // else it is not used
  Json manifest = {{"schema", 1},
                   {"tool", "qwen-image.cpp"},
                   {"pipeline", s.pipeline},
                   {"prompt", s.prompt},
                   {"negative_prompt", guided ? Json(*s.negative_prompt) : Json()},
                   {"width", s.width},
                   {"height", s.height},
                   {"steps", s.steps},
                   {"cfg", s.cfg},
                   {"seed", s.seed},
                   {"max_sequence_length", s.max_sequence_length},
                   {"dtype", "float32"},
                   {"checkpoints_level", RecordedLevel()},
                   {"threads", threads},
                   {"device", device},
                   {"checkpoints", checkpoints_}};
  if (!s.sigmas.empty()) manifest["sigmas"] = s.sigmas;
  if (!substituted_.empty()) manifest["substituted"] = substituted_;
  const std::string text = manifest.dump(1) + "\n";
  OutputFile file(folder_ / "manifest.json");
  file.Write(text.data(), text.size());
  file.Commit();
}

RunChecker::RunChecker(const ReferenceRun& reference, CheckpointSelection selection,
                       std::vector<std::string> substitute, RunRecorder* recorder)
    : reference_(reference),
      selection_(std::move(selection)),
      reference_selection_(RecordedSelection(reference.tensors().manifest())),
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
  if (!component_.empty() && !IsComputedBy(component_, name)) return false;
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
  // Saved first: the run's own tensor, not the one that may replace it.
  if (recorder_ && recorder_->Wants(name)) recorder_->OnCheckpoint(name, view);
  const TensorInfo* want = reference_.tensors().Find(name);
  if (Compares(name)) {
    if (!want) {
      extra_.push_back(name);
    } else {
      Compare(*want, view);
    }
  }
  // Also what is not compared: --substitute names tensors of the run, --checkpoints what to look at.
  if (want && Substitutes(name)) TakeOver(*want, view);
}

void RunChecker::Compare(const TensorInfo& want, const CheckpointView& view) {
  TensorComparison& compared = compared_[want.name] =
      CompareTensor(want.name, SourceOf(reference_.tensors(), want), SourceOfView(view),
                    [&](const TensorStats&) { return LiveCriterion(want.name, mode_); });
  if (want.name != kNoise || compared.passed || !compared.problem.empty()) return;
  compared.passed = true;
  notes_.push_back(
      "the reference's noise is not what its seed gives here (another generator or device); the run goes on "
      "from it");
}

void RunChecker::TakeOver(const TensorInfo& want, const CheckpointView& view) const {
  float* const* data = std::get_if<float*>(&view.data);
  if (!data || want.shape != view.shape || !want.is_float) return;  // the comparison says so
  const std::vector<float> values = reference_.tensors().ReadAll(want);
  std::copy(values.begin(), values.end(), *data);
}

Comparison RunChecker::comparison() const {
  const TensorSet& tensors = reference_.tensors();
  Comparison c{.ref_path = tensors.path(),
               .run_path = recorder_ ? recorder_->folder() : std::filesystem::path(),
               .ref_manifest = tensors.manifest(),
               .extra = extra_};
  c.notes = notes_;
  for (const TensorInfo& tensor : tensors.tensors()) {
    if (const auto found = compared_.find(tensor.name); found != compared_.end()) {
      c.tensors.push_back(found->second);
    } else if (Compares(tensor.name)) {
      c.missing.push_back(tensor.name);
    }
  }
  return c;
}

}  // namespace qwen_image
