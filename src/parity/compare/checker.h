// RunChecker: a sink that compares every checkpoint with a reference run while the run goes on. It may put
// the reference's tensor in the place of the run's own.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint.h"
#include "parity/compare/criterion.h"
#include "parity/compare/result.h"
#include "parity/record/level.h"
#include "parity/record/reference_run.h"
#include "parity/record/run_writer.h"

namespace qwen_image::compare {

class RunChecker : public CheckpointSink {
 public:
  // `substitute`: globs of the checkpoints that the run takes over from the reference after comparing them.
  RunChecker(const record::ReferenceRun& reference, record::CheckpointSelection selection,
             std::vector<std::string> substitute, record::RunWriter* recorder);

  bool Wants(std::string_view name) const override;
  void OnCheckpoint(const std::string& name, const CheckpointView& view) override;

  // Tells that only this component runs. Then the checkpoints of the others are not missing.
  void LimitTo(const std::string& component);

  // What was found so far. A checkpoint of the reference that the run has not reached is missing.
  Comparison comparison() const;
  bool passed() const { return comparison().passed(); }

 private:
  bool Substitutes(std::string_view name) const;
  void Compare(const record::TensorInfo& want, const CheckpointView& view);
  void TakeOver(const record::TensorInfo& want, const CheckpointView& view) const;
  bool Compares(std::string_view name) const;

  const record::ReferenceRun& reference_;
  record::CheckpointSelection selection_;
  std::optional<record::CheckpointSelection> reference_selection_;  // none: what the reference lists
  std::string component_;                                           // empty: all
  std::vector<std::string> substitute_;
  record::RunWriter* recorder_;  // may be null
  ErrorMode mode_;
  std::map<std::string, TensorComparison> compared_;
  std::vector<std::string> extra_, notes_;
};

}  // namespace qwen_image::compare
