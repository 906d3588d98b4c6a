#include "parity/run_recorder.h"

#include <algorithm>

#include "core/fail.h"
#include "core/glob.h"
#include "files/npy.h"
#include "files/output_file.h"

namespace qwen_image {

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

void RunRecorder::Finish(const RunSettings& s, int threads) {
  const Json manifest = {{"schema", 1},
                         {"tool", "qwen-image.cpp"},
                         {"pipeline", "QwenImagePipeline"},
                         {"prompt", s.prompt},
                         {"negative_prompt", s.negative_prompt ? Json(*s.negative_prompt) : Json()},
                         {"width", s.width},
                         {"height", s.height},
                         {"steps", s.steps},
                         {"cfg", s.cfg},
                         {"seed", s.seed},
                         {"max_sequence_length", s.max_sequence_length},
                         {"dtype", "float32"},
                         {"checkpoints_level", selection_.text()},
                         {"threads", threads},
                         {"checkpoints", checkpoints_}};
  const std::string text = manifest.dump(1) + "\n";
  OutputFile file(folder_ / "manifest.json");
  file.Write(text.data(), text.size());
  file.Commit();
}

RunChecker::RunChecker(const ReferenceRun& reference, CheckpointSelection selection,
                       std::vector<std::string> substitute, RunRecorder* recorder)
    : reference_(reference),
      selection_(std::move(selection)),
      reference_selection_(reference.level()),
      substitute_(std::move(substitute)),
      recorder_(recorder),
      mode_(substitute_.empty() ? ErrorMode::kAccumulated : ErrorMode::kIsolated) {}

bool RunChecker::Wants(std::string_view name) const {
  return Compares(name) || (recorder_ && recorder_->Wants(name));
}

bool RunChecker::Substitutes(const std::string& name) const {
  return std::any_of(substitute_.begin(), substitute_.end(),
                     [&](const std::string& glob) { return MatchesGlob(glob, name); });
}

void RunChecker::OnCheckpoint(const std::string& name, const CheckpointView& view) {
  if (recorder_ && recorder_->Wants(name)) recorder_->OnCheckpoint(name, view);
  if (!Compares(name)) return;
  if (!reference_.Has(name)) {
    extra_.push_back(name);
    return;
  }
  seen_.insert(name);
  CheckedTensor checked{.name = name,
                        .shape = view.shape,
                        .difference = {},
                        .tolerance = ToleranceOf(name, mode_),
                        .problem = {}};
  const NpyArray want = reference_.Read(name);
  const int64_t count = ElementCount(view.shape);
  if (want.shape != view.shape) {
    checked.problem = fmt::format("shape {}, expected {}", ToString(view.shape), ToString(want.shape));
  } else if (std::holds_alternative<float*>(view.data) !=
             std::holds_alternative<std::vector<float>>(want.values)) {
    checked.problem = fmt::format("the reference holds {}", want.dtype);
  } else if (const auto* values = std::get_if<std::vector<float>>(&want.values)) {
    float* got = std::get<float*>(view.data);
    checked.difference = Compare(got, values->data(), count);
    if (Substitutes(name)) std::copy_n(values->data(), count, got);
  } else {
    checked.difference = Compare(std::get<const int64_t*>(view.data),
                                 std::get<std::vector<int64_t>>(want.values).data(), count);
  }
  checked_.push_back(std::move(checked));
}

std::vector<std::string> RunChecker::missing() const {
  std::vector<std::string> names;
  for (const std::string& name : reference_.checkpoints()) {
    if (Compares(name) && !seen_.contains(name)) names.push_back(name);
  }
  return names;
}

bool RunChecker::passed() const {
  return !checked_.empty() && extra_.empty() && missing().empty() &&
         std::all_of(checked_.begin(), checked_.end(), [](const CheckedTensor& t) { return t.passed(); });
}

}  // namespace qwen_image
