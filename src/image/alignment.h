// Did an edit move or zoom the picture? Measures the shift and the scale between two pictures by what stayed:
// edges. Transparent parts are laid on white.
#pragma once

#include "core/threads.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::image {

Alignment MeasureAlignment(const Image& input, const Image& output, ThreadPool& pool);

}  // namespace qwen_image::image
