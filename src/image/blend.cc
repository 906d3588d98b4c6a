#include "image/blend.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace qwen_image::image {
namespace {

// The share of white pixels in the square around each white one, which at a straight edge is a little over
// one half: how much of the drawn picture shows there.
std::vector<float> InnerShares(const GreyImage& mask, int64_t radius) {
  const int64_t width = mask.width, height = mask.height;
  std::vector<int64_t> sums(static_cast<size_t>((width + 1) * (height + 1)), 0);  // of all above and left
  const auto sum = [&](int64_t y, int64_t x) -> int64_t& {
    return sums[static_cast<size_t>(y * (width + 1) + x)];
  };
  const auto white = [&](int64_t y, int64_t x) {
    return mask.pixels[static_cast<size_t>(y * width + x)] >= kRedrawnFrom;
  };
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x)
      sum(y + 1, x + 1) = sum(y, x + 1) + sum(y + 1, x) - sum(y, x) + (white(y, x) ? 1 : 0);
  }
  std::vector<float> shares(mask.pixels.size(), 0.0f);
  for (int64_t y = 0; y < height; ++y) {
    const int64_t top = std::max<int64_t>(0, y - radius), bottom = std::min(height, y + radius + 1);
    for (int64_t x = 0; x < width; ++x) {
      if (!white(y, x)) continue;
      const int64_t left = std::max<int64_t>(0, x - radius), right = std::min(width, x + radius + 1);
      const int64_t count = sum(bottom, right) - sum(top, right) - sum(bottom, left) + sum(top, left);
      shares[static_cast<size_t>(y * width + x)] =
          static_cast<float>(count) / static_cast<float>((bottom - top) * (right - left));
    }
  }
  return shares;
}

// Of two pixels that are mixed, how much the second one's colour counts: as much as is seen of it. So the
// colours that lie hidden under transparent parts do not shine through at the edge.
float ShareOfColour(const uint8_t* from, const uint8_t* to, size_t channels, float share) {
  if (channels == 3 || from[3] == to[3] || share >= 1) return share;
  const float seen_from = (1 - share) * static_cast<float>(from[3]);
  const float seen_to = share * static_cast<float>(to[3]);
  return seen_to / (seen_from + seen_to);
}

}  // namespace

Image Blend(const Image& original, const Image& drawn, const GreyImage& mask) {
  constexpr int64_t kSidesPerRadius = 256;  // 4 pixels of 1024, which is half a latent
  const int64_t radius = std::max<int64_t>(1, std::min(original.width, original.height) / kSidesPerRadius);
  const std::vector<float> shares = InnerShares(mask, radius);
  const auto channels = static_cast<size_t>(original.channels);
  Image blended = original;
  for (size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] <= 0) continue;
    const uint8_t *from = original.pixels.data() + i * channels, *to = drawn.pixels.data() + i * channels;
    uint8_t* out = blended.pixels.data() + i * channels;
    for (size_t c = 0; c < channels; ++c) {
      const float share = c < 3 ? ShareOfColour(from, to, channels, shares[i]) : shares[i];
      const auto a = static_cast<float>(from[c]), b = static_cast<float>(to[c]);
      out[c] = static_cast<uint8_t>(std::lround(a + share * (b - a)));
    }
  }
  return blended;
}

}  // namespace qwen_image::image
