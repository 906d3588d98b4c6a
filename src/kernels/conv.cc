#include "kernels/interface.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/conv.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must follow foreach_target.h.
#include "hwy/highway.h"
#include "kernels/gemm-inl.h"

#ifndef QWEN_IMAGE_KERNELS_CONV_ONCE_
#define QWEN_IMAGE_KERNELS_CONV_ONCE_
namespace qwen_image {
namespace {

// Writes elements [begin, end) of the patch under one output pixel. In a patch [kernel, kernel, in] each line
// is one run of the picture's memory, except where it leaves the picture.
void CopyPatch(const float* x, const Conv2dShape& s, int64_t out_y, int64_t out_x, int64_t begin, int64_t end,
               float* to) {
  const int64_t line = s.kernel * s.in_channels;
  const int64_t left = out_x * s.stride - s.pad_before;
  const int64_t inside_begin = std::clamp<int64_t>(-left, 0, s.kernel) * s.in_channels;
  const int64_t inside_end = std::clamp<int64_t>(s.width - left, 0, s.kernel) * s.in_channels;
  for (int64_t ky = begin / line; ky * line < end; ++ky) {
    const int64_t from = std::max(begin - ky * line, int64_t{0});
    const int64_t until = std::min(end - ky * line, line);
    const int64_t in_y = out_y * s.stride - s.pad_before + ky;
    if (in_y < 0 || in_y >= s.height || inside_begin >= inside_end) {
      std::fill_n(to, until - from, 0.0f);
    } else {
      const int64_t copy_from = std::clamp(inside_begin, from, until);
      const int64_t copy_until = std::clamp(inside_end, from, until);
      std::fill_n(to, copy_from - from, 0.0f);
      if (copy_from < copy_until) {
        std::copy_n(x + (in_y * s.width + left) * s.in_channels + copy_from, copy_until - copy_from,
                    to + copy_from - from);
      }
      std::fill_n(to + copy_until - from, until - copy_until, 0.0f);
    }
    to += until - from;
  }
}

}  // namespace
}  // namespace qwen_image
#endif

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {

void Conv2dTask(const GemmTask& task, const float* x, const Conv2dShape& shape, const WeightMatrix& w,
                const float* bias, float* y) {
  const auto copy_patches = [&](int64_t pixel, int64_t pixels, int64_t k, int64_t depth, float* to) {
    const int64_t width = shape.out_width();
    for (int64_t i = 0; i < pixels; ++i) {
      CopyPatch(x, shape, (pixel + i) / width, (pixel + i) % width, k, k + depth, to + i * kDepthBlock);
    }
  };
  GemmRun(task, w, bias, copy_patches, View{y, shape.out_height() * shape.out_width(), w.rows}).Run();
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qwen_image {

HWY_EXPORT(Conv2dTask);

void Conv2d(const float* x, const Conv2dShape& shape, const float* weight, const float* bias, float* y,
            ThreadPool& pool) {
  const int64_t pixels = shape.out_height() * shape.out_width();
  if (pixels <= 0 || shape.out_channels <= 0) return;
  const WeightMatrix w{weight, DType::kF32, shape.out_channels,
                       shape.kernel * shape.kernel * shape.in_channels};
  const GemmTasks tasks({pixels, w.rows, w.cols});
  pool.ParallelFor(tasks.count(), [&](int64_t i) {
    HWY_DYNAMIC_DISPATCH(Conv2dTask)(tasks[i], x, shape, w, bias, y);
  });
}

}  // namespace qwen_image
#endif
