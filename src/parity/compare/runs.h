// Compares two runs: their manifests, their tensors and their pictures.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parity/compare/criterion.h"
#include "parity/compare/result.h"
#include "parity/record/tensor_set.h"

namespace qwen_image::compare {

struct CompareOptions {
  CriterionOptions criterion;
  std::vector<std::string> only;  // globs; empty: everything
  // Called often, with the number of elements done and of all. May throw to stop.
  std::function<void(int64_t done, int64_t total)> on_progress;
};

// The keys in which two manifests differ; empty if one side has no manifest. Differences in prompt, size,
// steps and the like are fatal.
std::vector<ManifestDifference> CompareManifests(const Json& ref, const Json& run);

// Compares tensors of the same name, and pictures: the tensor `image` and the file image.png beside the
// tensors. If both manifests name a level of checkpoints, those that only the deeper level records are left
// out. Throws Error kUsage if `only` matches nothing.
Comparison CompareSets(const record::TensorSet& ref, const record::TensorSet& run,
                       const CompareOptions& options);

// Two PNG files. They pass if no pixel is more than one level off and the PSNR is at least 60 dB.
Comparison ComparePngFiles(const std::filesystem::path& ref, const std::filesystem::path& run);

}  // namespace qwen_image::compare
