#include "weights/nonfinite.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "files/text.h"

namespace qwen_image {
namespace {

using Clock = std::chrono::steady_clock;

bool AllFinite(const std::vector<float>& values, int64_t count) {
  return std::all_of(values.begin(), values.begin() + count, [](float v) { return std::isfinite(v); });
}

// In pieces: one tensor may be larger than memory once decoded.
bool HasNonFinite(WeightMatrix matrix, Clock::time_point deadline) {
  constexpr int64_t kPiece = 1 << 16;  // a multiple of every block and group
  const bool row_scales = matrix.coding && matrix.coding->scales_rows();
  if (!row_scales) {  // a block may hold several rows of a small tensor
    matrix.cols *= matrix.rows;
    matrix.rows = 1;
  }
  std::vector<float> values(static_cast<size_t>(std::min(matrix.cols, kPiece)));
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t first = 0; first < matrix.cols; first += kPiece) {
      if (Clock::now() > deadline) return false;
      const int64_t count = std::min(kPiece, matrix.cols - first);
      DecodeRow(matrix, row, first, count, values.data());
      if (!AllFinite(values, count)) return true;
    }
  }
  return false;
}

// As the file calls it, which is what a user can look for.
std::string Describe(const StoredIn& stored) {
  const auto& tensors = stored.file->tensors();
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const auto& item) { return &item.second == stored.tensor; });
  return fmt::format("{}: tensor {} holds NaN or infinity", stored.file->path().string(),
                     Quoted(found == tensors.end() ? "?" : found->first));
}

}  // namespace

std::string FindNonFinite(std::initializer_list<const WeightStore*> stores, std::chrono::milliseconds time) {
  const Clock::time_point deadline = Clock::now() + time;
  std::vector<const WeightTensor*> tensors;
  for (const WeightStore* store : stores) {
    if (!store) continue;
    for (const auto& [name, tensor] : store->tensors()) {
      // A tensor that could not be read or settled was not computed with either.
      if (tensor.problem().empty() && tensor.settled()) tensors.push_back(&tensor);
    }
  }
  for (const WeightTensor* tensor : tensors) {
    for (const StoredIn& part : tensor->parts()) {
      const WeightTensor numbers(part);
      if (numbers.problem().empty() && HasNonFinite(numbers.Matrix(), deadline)) return Describe(part);
    }
  }
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const WeightTensor* a, const WeightTensor* b) { return a->bytes() < b->bytes(); });
  for (const WeightTensor* tensor : tensors) {
    if (HasNonFinite(tensor->Matrix(), deadline)) return Describe(tensor->stored());
  }
  return "";
}

}  // namespace qwen_image
