// M-RoPE: positions on three axes.
#include <cmath>
#include <numeric>

#include "core/fail.h"
#include "families/qwen_image/text_encoder.h"

namespace qwen_image {

RopeTables TextEncoder::MakeRope(const std::vector<int64_t>& position_ids) const {
  const auto tokens = static_cast<int64_t>(position_ids.size()) / 3;
  const int64_t half = config_.head_dim() / 2;
  RopeTables rope{Tensor({tokens, half}), Tensor({tokens, half})};
  size_t section = 0;
  int64_t section_end = config_.mrope_section[0];
  for (int64_t i = 0; i < half; ++i) {
    while (i >= section_end && section + 1 < config_.mrope_section.size())
      section_end += config_.mrope_section[++section];
    const int64_t* const positions = position_ids.data() + static_cast<int64_t>(section % 3) * tokens;
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(config_.head_dim());
    const float inv_freq = 1.0f / std::pow(static_cast<float>(config_.rope_theta), exponent);
    for (int64_t t = 0; t < tokens; ++t) {
      const float angle = static_cast<float>(positions[t]) * inv_freq;
      rope.cos.row(t)[i] = std::cos(angle);
      rope.sin.row(t)[i] = std::sin(angle);
    }
  }
  return rope;
}

void TextEncoder::CheckMropeSection() const {
  const auto& section = config_.mrope_section;
  if (std::accumulate(section.begin(), section.end(), int64_t{0}) != config_.head_dim() / 2) {
    Fail(ErrorKind::kBadInput, "{}: mrope_section {} does not share the {} frequencies of a head",
         store_.config_path(), ToString(section), config_.head_dim() / 2);
  }
}

}  // namespace qwen_image
