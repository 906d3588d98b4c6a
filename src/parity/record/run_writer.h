// RunWriter: a sink that saves every checkpoint of a run as .npy, with a manifest at the end.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/checkpoint.h"
#include "files/json.h"
#include "parity/record/level.h"
#include "parity/record/reference_run.h"

namespace qwen_image::record {

class RunWriter : public CheckpointSink {
 public:
  RunWriter(std::filesystem::path folder, CheckpointSelection selection)
      : folder_(std::move(folder)), selection_(std::move(selection)) {}

  const std::filesystem::path& folder() const { return folder_; }
  bool Wants(std::string_view name) const override { return selection_.Contains(name); }
  void OnCheckpoint(const std::string& name, const CheckpointView& view) override;

  // Globs of the checkpoints that the run took over from a reference, for the manifest.
  void SetSubstituted(std::vector<std::string> globs) { substituted_ = std::move(globs); }

  // Tells that only this component runs.
  void LimitTo(std::string component) { component_ = std::move(component); }

  // Writes manifest.json. A folder without one is a run that did not finish. `device` is for people who read
  // the manifest.
  void Finish(const RunSettings& settings, int threads, const std::string& device);

 private:
  std::string RecordedLevel() const;

  std::filesystem::path folder_;
  CheckpointSelection selection_;
  std::string component_;
  std::vector<std::string> substituted_;
  Json checkpoints_ = Json::array();
};

}  // namespace qwen_image::record
