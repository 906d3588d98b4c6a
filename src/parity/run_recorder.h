// RunRecorder: a sink that saves every checkpoint of a run as .npy, with a manifest at the end.
// RunChecker: a sink that compares every checkpoint with a reference run while it goes, and may go on from
// the reference's tensor instead of its own.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/checkpoint.h"
#include "files/json.h"
#include "parity/comparison.h"
#include "parity/criterion.h"
#include "parity/level.h"
#include "parity/reference_run.h"

namespace qwen_image {

class RunRecorder : public CheckpointSink {
 public:
  RunRecorder(std::filesystem::path folder, CheckpointSelection selection)
      : folder_(std::move(folder)), selection_(std::move(selection)) {}

  const std::filesystem::path& folder() const { return folder_; }
  bool Wants(std::string_view name) const override { return selection_.Contains(name); }
  void OnCheckpoint(const std::string& name, const CheckpointView& view) override;

  // Globs of the checkpoints that the run took over from a reference, for the manifest.
  void SetSubstituted(std::vector<std::string> globs) { substituted_ = std::move(globs); }

  // The run is one component's alone.
  void LimitTo(std::string component) { component_ = std::move(component); }

  // Writes manifest.json last: a folder without one is a run that did not finish. `device`: what computed,
  // for those who read it.
  void Finish(const RunSettings& settings, int threads, const std::string& device);

 private:
  std::string RecordedLevel() const;

  std::filesystem::path folder_;
  CheckpointSelection selection_;
  std::string component_;
  std::vector<std::string> substituted_;
  Json checkpoints_ = Json::array();
};

class RunChecker : public CheckpointSink {
 public:
  // `substitute`: globs of the checkpoints that the run takes over from the reference after comparing them.
  RunChecker(const ReferenceRun& reference, CheckpointSelection selection,
             std::vector<std::string> substitute, RunRecorder* recorder);

  bool Wants(std::string_view name) const override;
  void OnCheckpoint(const std::string& name, const CheckpointView& view) override;

  // The run is one component's alone: what others compute is not missing.
  void LimitTo(const std::string& component);

  // What was found so far. What the reference has and the run did not come to is missing.
  Comparison comparison() const;
  bool passed() const { return comparison().passed(); }

 private:
  bool Substitutes(std::string_view name) const;
  void Compare(const TensorInfo& want, const CheckpointView& view);
  void TakeOver(const TensorInfo& want, const CheckpointView& view) const;
  bool Compares(std::string_view name) const;

  const ReferenceRun& reference_;
  CheckpointSelection selection_;
  std::optional<CheckpointSelection> reference_selection_;  // none: what the reference lists
  std::string component_;                                   // empty: all
  std::vector<std::string> substitute_;
  RunRecorder* recorder_;  // may be null
  ErrorMode mode_;
  std::map<std::string, TensorComparison> compared_;
  std::vector<std::string> extra_, notes_;
};

}  // namespace qwen_image
