#include "lora/alpha.h"

namespace qwen_image::lora {

AlphaScales SplitAlpha(double alpha_over_rank) {
  AlphaScales scales{.down = alpha_over_rank, .up = 1};
  while (scales.down * 2 < scales.up) {
    scales.down *= 2;
    scales.up /= 2;
  }
  return scales;
}

std::shared_ptr<const std::vector<std::byte>> ScaledMatrix(const WeightTensor& matrix, double scale) {
  const StoredTensor& stored = *matrix.stored().tensor;
  const auto size = static_cast<int64_t>(SizeOf(stored.dtype));
  const auto factor = static_cast<float>(scale);  // torch computes in float, whatever the type
  auto scaled = std::make_shared<std::vector<std::byte>>(stored.bytes.size());
  std::vector<float> row(static_cast<size_t>(matrix.row_size()));
  bool exact = static_cast<double>(factor) == scale;
  for (int64_t r = 0; r < matrix.rows(); ++r) {
    matrix.ReadRows(r, 1, row.data());
    for (float& value : row) {
      const double product = static_cast<double>(value) * scale;
      value *= factor;
      float rounded;
      ConvertFromFloat(&value, stored.dtype, 1, &rounded);
      ConvertToFloat(&rounded, stored.dtype, 1, &value);
      exact = exact && static_cast<double>(value) == product;
    }
    ConvertFromFloat(row.data(), stored.dtype, matrix.row_size(),
                     scaled->data() + r * matrix.row_size() * size);
  }
  return exact ? nullptr : scaled;
}

}  // namespace qwen_image::lora
