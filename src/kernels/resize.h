// Pictures in other sizes, with the bits of Pillow's Image.resize and torch's interpolate.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "core/threads.h"
#include "qwen_image/image.h"

namespace qwen_image {

enum class ResizeFilter { kBicubic, kLanczos };

// Sides of 1 and more; throws Error kUsage otherwise, or if `pixels` is not as large as the sides say. With
// alpha, colours count by how visible they are.
Image Resize(const Image& image, int64_t width, int64_t height, ResizeFilter filter, ThreadPool& pool);
GreyImage Resize(const GreyImage& image, int64_t width, int64_t height, ResizeFilter filter,
                 ThreadPool& pool);

// torch.nn.functional.interpolate(x, size=(height, width)), mode "nearest": [n, c, h, w] → [n, c, height,
// width].
Tensor InterpolateNearest(const Tensor& x, int64_t height, int64_t width);

}  // namespace qwen_image
