// What the tests of inspection share.
#pragma once

#include "inspect/weights.h"
#include "weights/testing.h"

namespace qwen_image::inspect {

inline Inspection Inspect(const std::filesystem::path& path, const InspectOptions& options = {}) {
  ThreadPool pool(2);
  const CancelFlag cancel;
  return InspectWeights(path, options, {pool, cancel, {}});
}

}  // namespace qwen_image::inspect
