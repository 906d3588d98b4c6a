// RunRecorder: a sink that saves every checkpoint of a run as .npy, with a manifest at the end.
// RunChecker: a sink that compares every checkpoint with a reference run while it goes, and may go on from
// the reference's tensor instead of its own.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/checkpoint.h"
#include "files/json.h"
#include "parity/difference.h"
#include "parity/level.h"
#include "parity/reference_run.h"

namespace qwen_image {

class RunRecorder : public CheckpointSink {
 public:
  RunRecorder(std::filesystem::path folder, CheckpointSelection selection)
      : folder_(std::move(folder)), selection_(std::move(selection)) {}

  bool Wants(std::string_view name) const override { return selection_.Contains(name); }
  void OnCheckpoint(const std::string& name, const CheckpointView& view) override;

  // Writes manifest.json last: a folder without one is a run that did not finish.
  void Finish(const RunSettings& settings, int threads);

 private:
  std::filesystem::path folder_;
  CheckpointSelection selection_;
  Json checkpoints_ = Json::array();
};

struct CheckedTensor {
  std::string name;
  Shape shape;
  Difference difference;
  Tolerance tolerance;
  std::string problem;  // why it cannot be compared: another shape or type; empty if it can
  bool passed() const { return problem.empty() && tolerance.Accepts(difference); }
};

class RunChecker : public CheckpointSink {
 public:
  // `substitute`: globs of the checkpoints that the run takes over from the reference after comparing them.
  RunChecker(const ReferenceRun& reference, CheckpointSelection selection,
             std::vector<std::string> substitute, RunRecorder* recorder);

  bool Wants(std::string_view name) const override;
  void OnCheckpoint(const std::string& name, const CheckpointView& view) override;

  const std::vector<CheckedTensor>& checked() const { return checked_; }
  std::vector<std::string> missing() const;  // in the reference, but the run never came there
  const std::vector<std::string>& extra() const { return extra_; }  // in the run, but not in the reference
  bool passed() const;  // something was compared, and nothing failed

 private:
  bool Substitutes(const std::string& name) const;

  bool Compares(std::string_view name) const {
    return selection_.Contains(name) && reference_selection_.Contains(name);
  }

  const ReferenceRun& reference_;
  CheckpointSelection selection_, reference_selection_;
  std::vector<std::string> substitute_;
  RunRecorder* recorder_;  // may be null
  ErrorMode mode_;
  std::vector<CheckedTensor> checked_;
  std::set<std::string> seen_;
  std::vector<std::string> extra_;
};

// The findings as JSON (for tools) and as a table of the worst of each component (for people).
Json ReportJson(const RunChecker& checker);
std::string ReportText(const RunChecker& checker);

}  // namespace qwen_image
