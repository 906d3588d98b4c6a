// CompareImages: how far two pictures are apart, as people see them.
#pragma once

#include <cstdint>
#include <vector>

#include "files/png.h"
#include "parity/compare/result.h"

namespace qwen_image::compare {

// A picture in floats, and the range of its values: 2 for −1…1 as the VAE returns it, 255 for 8-bit levels.
struct FloatImage {
  int64_t width = 0, height = 0;
  std::vector<float> values;  // [channels, height, width]
  int64_t channels = 3;       // 3: RGB; 4: RGBA
};

FloatImage ToFloatImage(const Image& image);

// All channels count alike. If only one picture has alpha, the other counts as opaque, and a note says so.
// PSNR takes `range` as its peak. SSIM is that of Wang et al. (2004): on luma (0.299, 0.587, 0.114) over
// white, with an 11 × 11 Gaussian window of σ 1.5 (smaller for pictures below 11 pixels), K1 = 0.01,
// K2 = 0.03, averaged over the places where the window lies inside the picture.
ImageComparison CompareImages(const FloatImage& ref, const FloatImage& run, double range);

// Whether two programs drew the same picture: no pixel is more than one level off, and the PSNR is at least
// 60 dB.
bool IsSameImage(const ImageComparison& picture);

}  // namespace qwen_image::compare
