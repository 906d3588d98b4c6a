#include <cmath>

#include "core/fail.h"
#include "families/qwen_image_21/text_encoder.h"

namespace qwen_image::qwen_image_21 {
namespace {

// 0: time, 1: height, 2: width.
int64_t AxisOf(int64_t frequency, const std::array<int64_t, 3>& section) {
  const int64_t axis = frequency % 3;
  return frequency < 3 * section[static_cast<size_t>(axis)] ? axis : 0;
}

}  // namespace

RopeTables MakeRope(const TextEncoderConfig& config, std::span<const int64_t> position_ids) {
  constexpr int64_t kMaxPosition = 1 << 24;  // up to here floats are exact
  const auto tokens = static_cast<int64_t>(position_ids.size()) / 3;
  for (const int64_t position : position_ids) {
    if (position > kMaxPosition)
      Fail(ErrorKind::kUsage, "the prompt is too long: position {} is beyond {}, the last that is exact",
           position, kMaxPosition);
  }
  const int64_t half = config.head_dim / 2;
  RopeTables rope{Tensor({tokens, half}), Tensor({tokens, half})};
  for (int64_t i = 0; i < half; ++i) {
    const int64_t* const positions = position_ids.data() + AxisOf(i, config.mrope_section) * tokens;
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(config.head_dim);
    const float inv_freq = 1.0f / std::pow(static_cast<float>(config.rope_theta), exponent);
    for (int64_t t = 0; t < tokens; ++t) {
      const float angle = static_cast<float>(positions[t]) * inv_freq;
      rope.cos.row(t)[i] = std::cos(angle);
      rope.sin.row(t)[i] = std::sin(angle);
    }
  }
  return rope;
}

}  // namespace qwen_image::qwen_image_21
