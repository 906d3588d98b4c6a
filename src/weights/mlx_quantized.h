// Weights as MLX quantizes them (mode "affine"): groups of consecutive values of a row share a scale and a
// bias, w = scale · q + bias, with q unsigned. The q are packed without gaps, lowest bits first, into
// little-endian uint32 words, so that `weight` has the shape [..., in · bits / 32], and `scales` and `biases`
// [..., in / group_size].
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "files/safetensors.h"

namespace qwen_image {

struct MlxQuantization {
  int bits = 0;
  int group_size = 0;
  bool operator==(const MlxQuantization&) const = default;
};

inline constexpr std::array kMlxBits = {2, 3, 4, 5, 6, 8};
inline constexpr std::array kMlxGroupSizes = {32, 64, 128};

// Shapes alone give bits × group size only: 4 × 64, 8 × 32 and 2 × 128 look alike. All that fit are returned,
// none if the shapes do not belong together.
std::vector<MlxQuantization> PossibleMlxQuantizations(const Shape& packed, const Shape& scales);

class MlxQuantizedTensor {
 public:
  // The entries must outlive this object. Throws Error kBadInput, with `name`, unless all fits together.
  MlxQuantizedTensor(std::string_view name, const StoredTensor& weight, const StoredTensor& scales,
                     const StoredTensor& biases, MlxQuantization quantization);

  const Shape& shape() const { return shape_; }  // of the values: [..., in]
  MlxQuantization quantization() const { return quantization_; }
  int64_t group_count() const {
    return group_count_;
  }  // groups of a row are neighbours, then comes the next row

  void Dequantize(int64_t first_group, int64_t groups, float* to /*[groups, group_size]*/) const;
  void Unpack(int64_t group, uint8_t* to /*[group_size]*/) const;  // the q

  // Tells the system that the pages of these groups are not needed for now (see MappedFile).
  void ReleasePages(int64_t first_group, int64_t groups) const;

 private:
  const StoredTensor* weight_;
  const StoredTensor* scales_;
  const StoredTensor* biases_;
  MlxQuantization quantization_;
  DType scales_dtype_, biases_dtype_;
  Shape shape_;
  int64_t group_count_ = 0;
  size_t group_bytes_ = 0;  // of packed values
};

// Which of the quantizations that fit the shapes the packed values were made with. MLX puts one value of
// every group at q = 0; seen with too many bits, most groups have no zero. Nothing if that does not decide.
std::optional<MlxQuantization> LikelyMlxQuantization(std::string_view name, const StoredTensor& weight,
                                                     const StoredTensor& scales, const StoredTensor& biases);

}  // namespace qwen_image
