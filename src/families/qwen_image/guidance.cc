#include "families/qwen_image/guidance.h"

#include <cmath>

namespace qwen_image {

void ApplyTrueCfg(const Tensor& negative, float scale, Tensor& positive) {
  const int64_t channels = positive.shape().back(), tokens = positive.size() / channels;
  for (int64_t t = 0; t < tokens; ++t) {
    float* pos = positive.row(t);
    const float* neg = negative.row(t);
    double positive_square = 0, combined_square = 0;
    for (int64_t c = 0; c < channels; ++c) {
      const float combined = neg[c] + scale * (pos[c] - neg[c]);
      positive_square += static_cast<double>(pos[c]) * pos[c];
      combined_square += static_cast<double>(combined) * combined;
      pos[c] = combined;
    }
    if (combined_square == 0) continue;  // comb is zero: nothing to rescale, and no 0 / 0
    const auto rescale = static_cast<float>(std::sqrt(positive_square) / std::sqrt(combined_square));
    for (int64_t c = 0; c < channels; ++c) pos[c] *= rescale;
  }
}

}  // namespace qwen_image
