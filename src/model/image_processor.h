// From a picture to what the models read, bit for bit as diffusers' VaeImageProcessor and transformers'
// Qwen2-VL image processor do it with Pillow.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>

#include "core/tensor.h"
#include "core/threads.h"
#include "qwen_image/image.h"

namespace qwen_image {

// Sides given to the VAE's processor are cut down to multiples of this: 8 pixels a latent, 2 latents a token.
inline constexpr int64_t kVaeScaleFactor = 16;

// Lanczos to (width, height), then 2 · x/255 - 1: [1, channels, height, width].
Tensor PreprocessForVae(const Image& image, int64_t width, int64_t height, ThreadPool& pool);

// Lanczos to (width, height), then to grey, then 1 where it is at least half as bright as white, else 0:
// [1, 1, height, width].
Tensor PreprocessMask(const GreyImage& mask, int64_t width, int64_t height, ThreadPool& pool);

// A picture with alpha as it looks on white paper, with the bits of Pillow's Image.paste; one without stays
// as it is.
Image OverWhite(Image image);

// Of Qwen2-VL's image processor, with transformers' names. The defaults are those of Qwen2.5-VL as published.
struct VisionProcessorConfig {
  int64_t min_pixels = 56 * 56;
  int64_t max_pixels = 28 * 28 * 16384;
  int64_t patch_size = 14;
  int64_t temporal_patch_size = 2;
  int64_t merge_size = 2;
  double rescale_factor = 1.0 / 255;
  std::array<double, 3> image_mean = {0.48145466, 0.4578275, 0.40821073};
  std::array<double, 3> image_std = {0.26862954, 0.26130258, 0.27577711};
};

// From the "image_processor" of processor_config.json (transformers 5) or else from preprocessor_config.json
// in `folder`; what they do not say, as in `defaults`. Throws Error kBadInput.
VisionProcessorConfig ReadVisionProcessorConfig(const std::filesystem::path& folder,
                                                const VisionProcessorConfig& defaults = {});

struct ImageSize {
  int64_t width = 0;
  int64_t height = 0;
  bool operator==(const ImageSize&) const = default;
};

// The size near `size` whose sides are whole merged patches and whose area is within the limits.
// Throws Error kBadInput for sides more than 200 times as long as each other, as transformers does.
ImageSize SmartResize(ImageSize size, const VisionProcessorConfig& config);

struct VisionPatches {
  Tensor pixel_values;  // [patches, 3 · temporal_patch_size · patch_size · patch_size]; merged patches stay
                        // together
  std::array<int64_t, 3> image_grid_thw = {};  // in patches
};

// Bicubic to SmartResize's size, rescaled, normalised, and cut into patches.
VisionPatches PreprocessForVision(const Image& image, const VisionProcessorConfig& config, ThreadPool& pool);

// The pixel_values of several pictures, one after the other.
Tensor JoinPatches(std::span<const VisionPatches> pictures);

}  // namespace qwen_image
