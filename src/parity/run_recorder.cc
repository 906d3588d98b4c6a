#include "parity/run_recorder.h"

#include <algorithm>

#include "core/fail.h"
#include "core/glob.h"
#include "files/npy.h"
#include "files/output_file.h"
#include "parity/compare.h"

namespace qwen_image {
namespace {

TensorSource SourceOfView(const CheckpointView& view) {
  return std::visit([&](const auto* data) { return SourceOf(data, view.shape); }, view.data);
}

}  // namespace

void RunRecorder::OnCheckpoint(const std::string& name, const CheckpointView& view) {
  const std::filesystem::path file = CheckpointFile(name);
  std::error_code error;
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

void RunRecorder::Finish(const RunSettings& s, const std::string& level, int threads) {
  const bool guided = s.negative_prompt && s.cfg > 1;  // else it is not used
  Json manifest = {{"schema", 1},
                   {"tool", "qwen-image.cpp"},
                   {"pipeline", "QwenImagePipeline"},
                   {"prompt", s.prompt},
                   {"negative_prompt", guided ? Json(*s.negative_prompt) : Json()},
                   {"width", s.width},
                   {"height", s.height},
                   {"steps", s.steps},
                   {"cfg", s.cfg},
                   {"seed", s.seed},
                   {"max_sequence_length", s.max_sequence_length},
                   {"dtype", "float32"},
                   {"checkpoints_level", level},
                   {"threads", threads},
                   {"checkpoints", checkpoints_}};
  if (!substituted_.empty()) manifest["substituted"] = substituted_;
  const std::string text = manifest.dump(1) + "\n";
  OutputFile file(folder_ / "manifest.json");
  file.Write(text.data(), text.size());
  file.Commit();
}

RunChecker::RunChecker(const ReferenceRun& reference, CheckpointLevel level,
                       std::vector<std::string> substitute, RunRecorder* recorder)
    : reference_(reference),
      level_(std::min(level, ParseCheckpointLevel(reference.level()))),
      substitute_(std::move(substitute)),
      recorder_(recorder),
      mode_(substitute_.empty() ? ErrorMode::kAccumulated : ErrorMode::kIsolated) {
  if (recorder_) recorder_->SetSubstituted(substitute_);
}

bool RunChecker::Wants(std::string_view name) const {
  return LevelOf(name) <= level_ || (recorder_ && recorder_->Wants(name));
}

bool RunChecker::Substitutes(const std::string& name) const {
  return std::any_of(substitute_.begin(), substitute_.end(),
                     [&](const std::string& glob) { return MatchesGlob(glob, name); });
}

void RunChecker::OnCheckpoint(const std::string& name, const CheckpointView& view) {
  // Saved first: the run's own tensor, not the one that may replace it.
  if (recorder_ && recorder_->Wants(name)) recorder_->OnCheckpoint(name, view);
  if (LevelOf(name) > level_) return;
  const TensorSet& tensors = reference_.tensors();
  const TensorInfo* want = tensors.Find(name);
  if (!want) {
    extra_.push_back(name);
    return;
  }
  const TensorComparison& compared = compared_[name] =
      CompareTensor(name, SourceOf(tensors, *want), SourceOfView(view),
                    [&](const TensorStats&) { return LiveCriterion(name, mode_); });
  if (!Substitutes(name) || !compared.problem.empty()) return;
  if (float* const* data = std::get_if<float*>(&view.data)) {
    const std::vector<float> values = tensors.ReadAll(*want);
    std::copy(values.begin(), values.end(), *data);
  }
}

Comparison RunChecker::comparison() const {
  const TensorSet& tensors = reference_.tensors();
  Comparison c{.ref_path = tensors.path(),
               .run_path = recorder_ ? recorder_->folder() : std::filesystem::path(),
               .ref_manifest = tensors.manifest(),
               .extra = extra_};
  for (const TensorInfo& tensor : tensors.tensors()) {
    if (const auto found = compared_.find(tensor.name); found != compared_.end()) {
      c.tensors.push_back(found->second);
    } else if (LevelOf(tensor.name) <= level_) {
      c.missing.push_back(tensor.name);
    }
  }
  return c;
}

}  // namespace qwen_image
