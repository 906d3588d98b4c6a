#pragma once
#include "core/threads.h"
#include "qwen_image/qwen_image.h"
namespace qwen_image {
inline Alignment MeasureAlignment(const RgbImage&, const RgbImage&, ThreadPool&) { return {}; }
}  // namespace qwen_image
