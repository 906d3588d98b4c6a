// --debug: records a run and compares it with a reference run of the same id. --trace: watches its health.
#pragma once

#include <memory>
#include <optional>

#include "debug_options.h"
#include "draw/component_run.h"
#include "generate_options.h"
#include "parity/compare/checker.h"
#include "parity/record/run_writer.h"
#include "parity/record/trace.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::cli {

// Takes prompt and settings from the reference's manifest where the user gave none, and refuses to compare
// runs with different ones. Throws Error kUsage.
void FillFromReference(const record::ReferenceRun& reference, GenerateOptions& options);

class DebugRun {
 public:
  explicit DebugRun(const DebugOptions& options);

  bool on() const { return recorder_ || !options_.trace.empty(); }
  const record::ReferenceRun* reference() const { return reference_ ? &*reference_ : nullptr; }

  void Watch(const Pipeline& pipeline);  // to be called when the model is loaded: --trace asks what it is
  CheckpointSink* sink();                // null: there is no listener

  // Writes and prints what was found. Returns false if a comparison or the run's health failed.
  bool Finish(const record::RunSettings& settings, const GenerateOptions& options, const Pipeline& pipeline);
  // After an error (a picture of NaN, say): what was seen up to there, which is what one looks for then.
  void ReportUnfinished(const GenerateOptions& options, const Pipeline& pipeline);

 private:
  std::filesystem::path ReferenceFolder() const { return options_.artifacts / options_.run_id / "ref"; }
  std::filesystem::path OwnFolder() const { return options_.artifacts / options_.run_id / "cpp"; }
  bool FinishTrace(const GenerateOptions& options);
  bool FinishComparison(const record::RunSettings& settings, const GenerateOptions& options,
                        const Pipeline& pipeline);

  DebugOptions options_;
  std::optional<record::ReferenceRun> reference_;
  std::unique_ptr<record::RunWriter> recorder_;
  std::unique_ptr<compare::RunChecker> checker_;
  std::unique_ptr<record::RunTracer> tracer_;
};

// A reference run's tensors as the inputs of one component.
class ReferenceInputs : public draw::ComponentInputs {
 public:
  explicit ReferenceInputs(const record::ReferenceRun& reference) : reference_(reference) {}
  std::optional<Tensor> Floats(const std::string& checkpoint) const override;
  std::optional<std::vector<int64_t>> Ids(const std::string& checkpoint) const override;

 private:
  const record::ReferenceRun& reference_;
};

}  // namespace qwen_image::cli
