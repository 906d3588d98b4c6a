// 3 × 3 convolutions by Winograd's method. A task takes a block of tiles through all steps while its data is
// in the cache: its pixels (normed, if wanted) → transformed → 36 (or 25) small matrix products over the
// channels → transformed back, with bias and residual added.
#include <algorithm>
#include <vector>

#include "core/fail.h"
#include "kernels/interface.h"
#include "kernels/tasks.h"
#include "kernels/winograd_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/winograd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must follow foreach_target.h.
#include "hwy/highway.h"
#include "kernels/math-inl.h"
#include "kernels/norm-inl.h"
#include "kernels/winograd-inl.h"

#ifndef QWEN_IMAGE_KERNELS_WINOGRAD_ONCE_
#define QWEN_IMAGE_KERNELS_WINOGRAD_ONCE_
namespace qwen_image {
namespace {

// Input channels that are summed up at once: the weights of a panel of them stay in L1 (16 KB with AVX-512),
// and rounding errors grow with the root of the longest sum.
constexpr int64_t kDepthBlock = 128;

}  // namespace
}  // namespace qwen_image
#endif

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int64_t kPanel = 2 * kLanes;  // output channels that are multiplied at once
// As many as the registers hold: see gemm-inl.h.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int kTileRows = 12;
#else
inline constexpr int kTileRows = 6;
#endif

int64_t FilterPanel() { return kPanel; }

// u[product][panel][in][kPanel] for one panel of output channels.
template <class Transform>
void TransformFilterPanel(const WeightMatrix& w, int64_t in, int64_t panel, float* u) {
  constexpr int kProducts = Transform::kProducts;
  const F32 d;
  const int64_t outs = std::min(kPanel, w.rows - panel * kPanel), panels = CeilDiv(w.rows, kPanel);
  const int64_t live = w.cols / in - 9;  // the last temporal slice
  float* const rows = ThreadScratch(kPanel * w.cols);
  for (int64_t o = 0; o < outs; ++o) DecodeRow(w, panel * kPanel + o, 0, w.cols, rows + o * w.cols);
  HWY_ALIGN float taps[9 * kPanel] = {};
  for (int64_t c = 0; c < in; ++c) {
    for (int64_t o = 0; o < outs; ++o) {
      const float* const from = rows + o * w.cols + c * (w.cols / in) + live;
      for (int64_t k = 0; k < 9; ++k) taps[k * kPanel + o] = from[k];
    }
    for (int64_t half = 0; half < kPanel; half += kLanes) {
      TransformSquare<3, kProducts, VF32>(
          [](const auto& g, auto& to) HWY_ATTR { Transform::Filter(g, to); },
          [&](int i, int j) HWY_ATTR { return hn::Load(d, taps + (3 * i + j) * kPanel + half); },
          [&](int i, int j, VF32 v) HWY_ATTR {
            const int64_t product = i * kProducts + j;
            hn::StoreU(v, d, u + ((product * panels + panel) * in + c) * kPanel + half);
          });
    }
  }
}

void TransformFilter(const WeightMatrix& w, int64_t in, bool upsample, int64_t panel, float* u) {
  if (upsample) {
    TransformFilterPanel<UpsamplingTransform>(w, in, panel, u);
  } else {
    TransformFilterPanel<PlainTransform>(w, in, panel, u);
  }
}

// One task.
template <class Transform>
class BlockRun {
 public:
  BlockRun(const TileBlock& block, const Conv3x3Shape& shape, const float* u, const Conv3x3Input& input,
           const Conv3x3Output& output)
      : block_(block),
        shape_(shape),
        u_(u),
        in_(input),
        out_(output),
        channels_(RoundUp(shape.in_channels, kLanes)),
        first_panel_(block.out_begin / kPanel),
        cols_(RoundUp(block.out_end, kPanel) - first_panel_ * kPanel),
        pixel_rows_(block.rows * Transform::kStep + 2),
        pixel_cols_(block.cols * Transform::kStep + 2),
        factor_size_(block.count() * channels_ + kApart),
        sums_size_(block.count() * cols_ + kApart) {
    const int64_t pixels = pixel_rows_ * pixel_cols_ * channels_;
    const int64_t factors = Transform::kFactors * Transform::kFactors * factor_size_;
    pixels_ = ThreadScratch(pixels + factors + kProducts * kProducts * sums_size_);
    factors_ = pixels_ + pixels;
    sums_ = factors_ + factors;
  }

  void Run() {
    FindPixels();
    TransformPixels();
    Multiply();
    TransformSums();
  }

 private:
  static constexpr int kProducts = Transform::kProducts;
  // Matrices that are read side by side start a cache line further each, so as not to compete for its place.
  static constexpr int64_t kApart = 16;

  // The block's pixels and those around it: where they are, or else a copy.
  void FindPixels() {
    const int64_t top = block_.top * Transform::kStep - 1, left = block_.left * Transform::kStep - 1;
    const bool inside =
        top >= 0 && left >= 0 && top + pixel_rows_ <= shape_.height && left + pixel_cols_ <= shape_.width;
    if (inside && !in_.norm_gamma && channels_ == shape_.in_channels) {
      window_ = Pixel(top, left);
      window_stride_ = shape_.width * channels_;
      return;
    }
    window_ = pixels_;
    window_stride_ = pixel_cols_ * channels_;
    for (int64_t row = 0; row < pixel_rows_; ++row) {
      for (int64_t col = 0; col < pixel_cols_; ++col) {
        float* const to = pixels_ + row * window_stride_ + col * channels_;
        const int64_t y = top + row, x = left + col;
        if (y < 0 || y >= shape_.height || x < 0 || x >= shape_.width) {
          std::fill_n(to, channels_, 0.0f);
        } else {
          CopyPixel(Pixel(y, x), to);
        }
      }
    }
  }

  const float* Pixel(int64_t y, int64_t x) const {
    return in_.x + ((y - in_.first_row) * shape_.width + x) * shape_.in_channels;
  }

  void CopyPixel(const float* from, float* to) const {
    const F32 d;
    const int64_t count = shape_.in_channels, whole = count / kLanes * kLanes;
    if (whole < channels_) std::fill_n(to + whole, kLanes, 0.0f);
    if (!in_.norm_gamma) {
      std::copy_n(from, count, to);
      return;
    }
    const float factor = ChannelNormFactor(d, from, count);
    const VF32 f = hn::Set(d, factor);
    for (int64_t c = 0; c < whole; c += kLanes) {
      const VF32 normed = hn::Mul(hn::Mul(hn::LoadU(d, from + c), f), hn::LoadU(d, in_.norm_gamma + c));
      hn::StoreU(SiluOf(d, normed), d, to + c);
    }
    if (whole == count) return;
    for (int64_t c = whole; c < count; ++c) to[c] = from[c] * factor * in_.norm_gamma[c];
    hn::StoreU(SiluOf(d, hn::LoadU(d, to + whole)), d, to + whole);
  }

  // factors[i, j][tile][channel]
  void TransformPixels() {
    const F32 d;
    for (int64_t tile = 0; tile < block_.count(); ++tile) {
      const float* const corner = window_ + tile / block_.cols * Transform::kStep * window_stride_ +
                                  tile % block_.cols * Transform::kStep * channels_;
      float* const to = factors_ + tile * channels_;
      for (int64_t c = 0; c < channels_; c += kLanes) {
        TransformSquare<Transform::kInputs, Transform::kFactors, VF32>(
            [](const auto& from, auto& result) HWY_ATTR { Transform::Input(from, result); },
            [&](int i, int j)
                HWY_ATTR { return hn::LoadU(d, corner + i * window_stride_ + j * channels_ + c); },
            [&](int i, int j, VF32 v)
                HWY_ATTR { hn::StoreU(v, d, to + (i * Transform::kFactors + j) * factor_size_ + c); });
      }
    }
  }

  // sums[product][tile][output channel]
  void Multiply() {
    const F32 d;
    const int64_t tiles = block_.count(), depth = shape_.in_channels;
    const int64_t panels = CeilDiv(shape_.out_channels, kPanel);
    for (int product = 0; product < kProducts * kProducts; ++product) {
      const int i = Transform::FactorOf(product / kProducts), j = Transform::FactorOf(product % kProducts);
      const float* const a = factors_ + (i * Transform::kFactors + j) * factor_size_;
      for (int64_t col = 0; col < cols_; col += kPanel) {
        const float* const b = u_ + (product * panels + first_panel_ + col / kPanel) * depth * kPanel;
        float* const m = sums_ + product * sums_size_ + col;
        for (int64_t k = 0; k < depth; k += kDepthBlock) {
          for (int64_t row = 0; row < tiles; row += kTileRows) {
            DenseTileOfRows<kTileRows>(d, std::min<int64_t>(kTileRows, tiles - row), a + row * channels_ + k,
                                       channels_, b + k * kPanel, std::min(kDepthBlock, depth - k), k > 0,
                                       m + row * cols_, cols_);
          }
        }
      }
    }
  }

  void TransformSums() {
    const F32 d;
    const int64_t line = shape_.out_width() * shape_.out_channels;
    for (int64_t tile = 0; tile < block_.count(); ++tile) {
      const int64_t top = (block_.top + tile / block_.cols) * kConvTile;
      const int64_t left = (block_.left + tile % block_.cols) * kConvTile;
      const int64_t rows = std::min(kConvTile, out_.row_end - top);
      const int64_t cols = std::min(kConvTile, shape_.out_width() - left);
      const int64_t offset = (top - out_.first_row) * line + left * shape_.out_channels;
      for (int64_t c = block_.out_begin; c < block_.out_end; c += kLanes) {
        const float* const from = sums_ + tile * cols_ + c - first_panel_ * kPanel;
        const int64_t channels = std::min(kLanes, block_.out_end - c);
        const VF32 bias = LoadSome(out_.bias + c, channels);
        TransformSquare<kProducts, kConvTile, VF32>(
            [](const auto& m, auto& result) HWY_ATTR { Transform::Output(m, result); },
            [&](int i, int j) HWY_ATTR { return hn::LoadU(d, from + (i * kProducts + j) * sums_size_); },
            [&](int i, int j, VF32 v) HWY_ATTR {
              if (i >= rows || j >= cols) return;
              const int64_t at = offset + i * line + j * shape_.out_channels + c;
              v = hn::Add(v, bias);
              if (out_.residual) v = hn::Add(v, LoadSome(out_.residual + at, channels));
              StoreSome(v, channels, out_.y + at);
            });
      }
    }
  }

  static HWY_INLINE VF32 LoadSome(const float* from, int64_t count) {
    const F32 d;
    if (HWY_LIKELY(count == kLanes)) return hn::LoadU(d, from);
    HWY_ALIGN float buffer[kLanes] = {};
    std::copy_n(from, count, buffer);
    return hn::Load(d, buffer);
  }
  static HWY_INLINE void StoreSome(VF32 v, int64_t count, float* to) {
    const F32 d;
    if (HWY_LIKELY(count == kLanes)) return hn::StoreU(v, d, to);
    HWY_ALIGN float buffer[kLanes];
    hn::Store(v, d, buffer);
    std::copy_n(buffer, count, to);
  }

  const TileBlock block_;
  const Conv3x3Shape& shape_;
  const float* const u_;
  const Conv3x3Input& in_;
  const Conv3x3Output& out_;
  const int64_t channels_;                 // of the input, whole vectors
  const int64_t first_panel_, cols_;       // of the output channels, whole panels
  const int64_t pixel_rows_, pixel_cols_;  // of the block's window
  const int64_t factor_size_, sums_size_;  // of one matrix
  float *pixels_, *factors_, *sums_;
  const float* window_ = nullptr;
  int64_t window_stride_ = 0;
};

void Conv3x3Block(const TileBlock& block, const Conv3x3Shape& shape, const float* u,
                  const Conv3x3Input& input, const Conv3x3Output& output) {
  if (shape.upsample) {
    BlockRun<UpsamplingTransform>(block, shape, u, input, output).Run();
  } else {
    BlockRun<PlainTransform>(block, shape, u, input, output).Run();
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qwen_image {

HWY_EXPORT(FilterPanel);
HWY_EXPORT(TransformFilter);
HWY_EXPORT(Conv3x3Block);

void Conv3x3Filter::Set(const WeightMatrix& weight, int64_t in_channels, bool upsample, ThreadPool& pool) {
  const int64_t panel = HWY_DYNAMIC_DISPATCH(FilterPanel)();
  const int64_t panels = CeilDiv(weight.rows, panel);
  const int64_t products = upsample ? 25 : 36;
  const int64_t size = products * panels * panel * in_channels;
  constexpr int64_t kMuchSmaller = 4;  // large pictures have small filters, and need the memory
  if (memory_.size() < size || memory_.size() > kMuchSmaller * size) {
    memory_ = Tensor();  // give the old block back first
    memory_ = Tensor({size});
  }
  pool.ParallelFor(panels, [&](int64_t i) {
    HWY_DYNAMIC_DISPATCH(TransformFilter)(weight, in_channels, upsample, i, memory_.data());
  });
}

void Conv3x3(const Conv3x3Shape& shape, const Conv3x3Filter& filter, const Conv3x3Input& input,
             const Conv3x3Output& output, ThreadPool& pool) {
  if (output.row_begin >= output.row_end || shape.out_width() <= 0 || shape.out_channels <= 0) return;
  if (output.row_begin % kConvTile != 0 ||
      (output.row_end % kConvTile != 0 && output.row_end != shape.out_height())) {
    Fail(ErrorKind::kInternal, "rows {} to {} of a convolution are not whole tiles", output.row_begin,
         output.row_end);
  }
  const std::vector<TileBlock> blocks = CutConvolution(shape, output.row_begin, output.row_end, pool.size());
  pool.ParallelFor(static_cast<int64_t>(blocks.size()), [&](int64_t i) {
    HWY_DYNAMIC_DISPATCH(Conv3x3Block)(blocks[static_cast<size_t>(i)], shape, filter.data(), input, output);
  });
}

}  // namespace qwen_image
#endif
