// ReferenceRun: a recorded run of a pipeline, which is a TensorSet with a manifest that says what was run.
// tools/reference/export.py and RunWriter write such runs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "files/npy.h"
#include "parity/record/level.h"
#include "parity/record/tensor_set.h"

namespace qwen_image::record {

// What was run. Two runs must agree on it to be compared.
struct RunSettings {
  std::string prompt;
  std::optional<std::string> negative_prompt;  // none: a run without guidance
  int64_t width = 0, height = 0, steps = 0;
  std::vector<double> sigmas = {};  // empty: the model's own
  double cfg = 1;
  uint64_t seed = 0;
  int64_t max_sequence_length = 512;
  std::string pipeline = "QwenImagePipeline";  // diffusers' class
  // Files in the run's folder: pictures that an edit or an image-to-image run started from.
  std::vector<std::string> images = {};
  std::string mask = {};  // empty: none
  std::optional<double> strength = {};

  bool edits() const;  // true if the prompt speaks of `images`
};

class ReferenceRun {
 public:
  explicit ReferenceRun(const std::filesystem::path& folder);  // throws Error kBadInput

  const RunSettings& settings() const { return settings_; }
  const TensorSet& tensors() const { return tensors_; }
  const std::vector<std::string>& checkpoints() const { return order_; }  // in the order of the run
  bool Has(const std::string& name) const { return tensors_.Find(name) != nullptr; }
  NpyArray Read(const std::string& name) const;  // its dtype is NumPy's name for it

 private:
  TensorSet tensors_;
  RunSettings settings_;
  std::vector<std::string> order_;
};

// The checkpoints that a run was told to record, from its manifest. Nothing if the manifest does not say:
// then the run holds what it lists.
std::optional<CheckpointSelection> RecordedSelection(const Json& manifest);

// The file of a checkpoint inside a run's folder.
std::filesystem::path CheckpointFile(const std::string& name);

}  // namespace qwen_image::record
