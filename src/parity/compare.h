// Compares tensors: one with another, or two sets of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parity/comparison.h"
#include "parity/criterion.h"
#include "parity/tensor_set.h"

namespace qwen_image {

// One side of a comparison. `read` may be called for any part, and more than once for the same.
struct TensorSource {
  Shape shape;
  std::string dtype;
  bool is_float = true;
  int64_t count = 0;
  std::function<void(int64_t begin, int64_t count, double* out)> read;
};
TensorSource SourceOf(const TensorSet& set, const TensorInfo& tensor);
TensorSource SourceOf(const float* data, const Shape& shape);
TensorSource SourceOf(const int64_t* data, const Shape& shape);

// `choose` gets the figures of the reference, to which a criterion may be relative. The reference is read
// twice.
TensorComparison CompareTensor(const std::string& name, const TensorSource& ref, const TensorSource& run,
                               const std::function<Criterion(const TensorStats& ref)>& choose);

struct CompareOptions {
  CriterionOptions criterion;
  std::vector<std::string> only;  // globs; empty: everything
  // Called often, with the number of elements done and of all. May throw to stop.
  std::function<void(int64_t done, int64_t total)> on_progress;
};

// What the two manifests say differently; nothing if one side has none. Prompt, size, steps and the like are
// fatal.
std::vector<ManifestDifference> CompareManifests(const Json& ref, const Json& run);

// Tensors of the same name, and pictures: the tensor `image` and the file image.png beside the tensors. If
// both manifests name a level of checkpoints, what only the deeper one records is left out. Throws Error
// kUsage if `only` matches nothing.
Comparison CompareSets(const TensorSet& ref, const TensorSet& run, const CompareOptions& options);

// Two PNG files. They pass if no pixel is more than one level off and the PSNR is at least 60 dB.
Comparison ComparePngFiles(const std::filesystem::path& ref, const std::filesystem::path& run);

}  // namespace qwen_image
