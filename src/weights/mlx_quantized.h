// MLX's groups (see MlxGroups) in files: `weight` holds uint32 words and has the shape [..., in · bits / 32],
// `scales` and `biases` have [..., in / group_size].
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "files/weight_file.h"
#include "kernels/mlx_groups.h"

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
  const MlxGroups& groups() const { return groups_; }
  int64_t group_count() const { return group_count_; }

  void Dequantize(int64_t first_group, int64_t groups, float* to /*[groups, group_size]*/) const {
    groups_.Dequantize(first_group, groups, to);
  }
  void Unpack(int64_t group, uint8_t* to /*[group_size]*/) const { groups_.Unpack(group, 1, to); }  // the q

 private:
  MlxQuantization quantization_;
  MlxGroups groups_;
  Shape shape_;
  int64_t group_count_ = 0;
};

// Which of the quantizations that fit the shapes the packed values were made with. MLX puts one value of
// every group at q = 0; seen with too many bits, most groups have no zero. Nothing if that does not decide.
std::optional<MlxQuantization> LikelyMlxQuantization(std::string_view name, const StoredTensor& weight,
                                                     const StoredTensor& scales, const StoredTensor& biases);

}  // namespace qwen_image
