#include "draw/memory_check.h"

#include <algorithm>
#include <filesystem>

#include "core/fail.h"
#include "core/memory.h"
#include "weights/files.h"

namespace qwen_image::draw {
namespace {

std::string HumanBytes(int64_t bytes) {
  const auto amount = static_cast<double>(bytes);
  return amount < 1e9 ? fmt::format("{:.0f} MB", amount / 1e6) : fmt::format("{:.1f} GB", amount / 1e9);
}

// Of a file, or of all files with weights in a folder. Files that cannot be read are skipped: opening them
// reports the error.
int64_t WeightBytes(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) {
    return static_cast<int64_t>(std::filesystem::file_size(path, error));
  }
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    const bool weights =
        entry.path().extension() == kWeightsEnding || entry.path().extension() == kGgufEnding;
    if (weights && entry.is_regular_file(error)) bytes += static_cast<int64_t>(entry.file_size(error));
  }
  return bytes;
}

}  // namespace

void CheckWeightsFit(const ModelParts& parts) {
  const int64_t available = AvailableMemory();
  const int64_t largest =
      std::max({WeightBytes(parts.text_encoder), WeightBytes(parts.transformer), WeightBytes(parts.vae)});
  if (largest > available) {
    Fail(ErrorKind::kOutOfMemory,
         "{}: the largest part of the model needs {} of memory, but only {} are "
         "available; use a machine with more memory, or switch this check off (check_memory; in the program "
         "--ignore-memory) to read from disk at every step, which is very slow",
         parts.root.string(), HumanBytes(largest), HumanBytes(available));
  }
}

Workload WorkloadOf(const GenerateRequest& request, const Settings& settings) {
  return {.picture = {settings.width, settings.height},
          .references = settings.references,
          .prompt_tokens = request.max_sequence_length,
          .tiling = request.vae_tiling};
}

void CheckWorkspaceFits(const Model& model, const GenerateRequest& request, const Settings& settings) {
  const int64_t available = AvailableMemory();
  const int64_t needed = model.EstimateMemory(WorkloadOf(request, settings)).largest();
  if (needed > available) {
    Fail(ErrorKind::kOutOfMemory,
         "a picture of {}x{} needs about {} of memory with this model, but only {} are "
         "available; choose a smaller size",
         settings.width, settings.height, HumanBytes(needed), HumanBytes(available));
  }
}

}  // namespace qwen_image::draw
