#include "kernels/block_coding.h"

#include <utility>

namespace qwen_image {
namespace {

class BlockCoding : public WeightCoding {
 public:
  BlockCoding(const BlockFormat& format, std::vector<float> scales)
      : WeightCoding(format.values, format.bytes, /*side_bytes=*/0,
                     {format.integers.group, format.integers.bits, format.integers.packed},
                     scales.size() > 1),
        format_(format),
        scales_(std::move(scales)) {}

  std::string Name() const override { return std::string(format_.name); }

  void Decode(const std::byte* units, int64_t row, int64_t, int64_t count, float* to) const override {
    format_.decode(units, count, to);
    if (scales_.empty()) return;
    const float scale = ScaleOf(row);
    for (int64_t i = 0; i < count * unit(); ++i) to[i] *= scale;
  }

  void Unpack(const std::byte* units, int64_t row, int64_t, int64_t count, uint8_t* q, float* scales,
              float* biases) const override {
    if (q) {
      format_.integers.unpack(units, count, q, scales, biases);
    } else {
      format_.integers.read_scales(units, count, scales, biases);
    }
    if (scales_.empty()) return;
    const float scale = ScaleOf(row);
    for (int64_t i = 0; i < count * unit() / integers().group; ++i) {
      scales[i] *= scale;
      biases[i] *= scale;
    }
  }

 private:
  float ScaleOf(int64_t row) const { return scales_[scales_.size() == 1 ? 0 : static_cast<size_t>(row)]; }

  const BlockFormat& format_;
  std::vector<float> scales_;
};

}  // namespace

std::shared_ptr<const WeightCoding> MakeBlockCoding(const BlockFormat& format, std::vector<float> scales) {
  return std::make_shared<BlockCoding>(format, std::move(scales));
}

}  // namespace qwen_image
