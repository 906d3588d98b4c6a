// --debug: records a run and compares it with a reference run of the same id.
#pragma once

#include <memory>
#include <optional>

#include "options.h"
#include "parity/run_recorder.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image {

class DebugRun {
 public:
  explicit DebugRun(const DebugOptions& options);

  // Takes prompt and settings from the reference's manifest where the user gave none, and refuses to compare
  // runs with different ones. Throws Error kUsage.
  void FillFromReference(GenerateOptions& options) const;

  CheckpointSink* sink();

  // Writes the manifest and report.json, and prints the comparison. Returns false if it failed.
  bool Finish(const Picture& picture, const GenerateOptions& options, int threads);

 private:
  std::filesystem::path ReferenceFolder() const { return options_.artifacts / options_.run_id / "ref"; }
  std::filesystem::path OwnFolder() const { return options_.artifacts / options_.run_id / "cpp"; }

  DebugOptions options_;
  std::optional<ReferenceRun> reference_;
  std::unique_ptr<RunRecorder> recorder_;
  std::unique_ptr<RunChecker> checker_;
};

}  // namespace qwen_image
