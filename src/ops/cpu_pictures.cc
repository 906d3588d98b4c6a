// Convolutions. Steps are fused, and large pictures go through a residual branch in bands; what a listener
// wants to see on the way becomes a whole picture first, and the result has the same bits.
#include <algorithm>
#include <utility>

#include "ops/cpu.h"

namespace qwen_image {
namespace {

// As many rows as `floats` allow, in whole blocks of tiles of the convolution.
int64_t BandRows(int64_t floats_per_row, int64_t floats) {
  constexpr int64_t kWholeBlocks = 24;
  return std::max<int64_t>(1, floats / floats_per_row / kWholeBlocks) * kWholeBlocks;
}

Conv3x3Shape ShapeOf(const Conv3x3Layer& layer, const Array& x) {
  return {.in_channels = layer.in, .out_channels = layer.out, .height = x.dim(0), .width = x.dim(1)};
}

}  // namespace

Array CpuOps::FromPicture(const Tensor& x) {
  const Profile::Scope timed = Timed("copies");
  const int64_t channels = x.dim(1), height = x.shape().end()[-2], width = x.shape().end()[-1];
  Array y = New({height, width, channels});
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t p = 0; p < height * width; ++p) y.view.data[p * channels + c] = x[c * height * width + p];
  }
  return y;
}

Tensor CpuOps::ToPicture(const Array& x, Frames frames) {
  const Profile::Scope timed = Timed("copies");
  const int64_t pixels = x.dim(0) * x.dim(1), channels = x.dim(2);
  Tensor y(frames == Frames::kOne ? Shape{1, channels, 1, x.dim(0), x.dim(1)}
                                  : Shape{1, channels, x.dim(0), x.dim(1)});
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t p = 0; p < pixels; ++p) y[c * pixels + p] = x.view.data[p * channels + c];
  }
  return y;
}

void CpuOps::ShowPicture(const Tap& tap, std::string_view name, Array& x, Frames frames) {
  if (!tap.Wants(name)) return;
  Tensor seen = ToPicture(x, frames);
  tap(name, seen);
  x = FromPicture(seen);
}

Array CpuOps::Convolve(const Conv& layer, const Array& x, int64_t stride, int64_t pad_after) {
  const Profile::Scope timed = Timed("convolution");
  const Conv2dShape shape{.in_channels = layer.in,
                          .out_channels = layer.out,
                          .height = x.dim(0),
                          .width = x.dim(1),
                          .kernel = layer.kernel,
                          .stride = stride,
                          .pad_before = 0,
                          .pad_after = pad_after};
  Array y = New({shape.out_height(), shape.out_width(), layer.out});
  Conv2d(x.view.data, shape, layer.weight.data(), layer.bias.data(), y.view.data, compute_.pool);
  return y;
}

Array CpuOps::Convolve(const Conv3x3Layer& layer, const Array& x, bool upsample) {
  Conv3x3Shape shape = ShapeOf(layer, x);
  shape.upsample = upsample;
  return RunConv(layer, shape, {x.view.data});
}

Array CpuOps::ChannelNorm(const std::vector<float>& gamma, const Array& x) {
  const Profile::Scope timed = Timed("norm");
  Array y = New(x.shape);
  qwen_image::ChannelNorm(x.view, gamma.data(), y.view, compute_.pool);
  return y;
}

Array CpuOps::NormSiluConvolve(const std::vector<float>& gamma, const char* norm, const Conv3x3Layer& layer,
                               const Array& x, const Tap& tap) {
  Array seen;
  return RunConv(layer, ShapeOf(layer, x), Normed(gamma, x, norm, seen, tap));
}

Array CpuOps::RunConv(const Conv3x3Layer& layer, const Conv3x3Shape& shape, const Conv3x3Input& input) {
  const Profile::Scope timed = Timed("convolution");
  filter1_.Set(layer.weight, layer.in, shape.upsample, compute_.pool);
  Array y = New({shape.out_height(), shape.out_width(), layer.out});
  Conv3x3(shape, filter1_, input, {.bias = layer.bias.data(), .y = y.view.data, .row_end = y.dim(0)},
          compute_.pool);
  return y;
}

// The input of a convolution of SiLU(norm(x)). The norm becomes an array, `seen`, only if a listener wants
// it.
Conv3x3Input CpuOps::Normed(const std::vector<float>& gamma, const Array& x, const char* name, Array& seen,
                            const Tap& tap) {
  if (!tap.Wants(name)) return {.x = x.view.data, .norm_gamma = gamma.data()};
  seen = ChannelNorm(gamma, x);
  ShowPicture(tap, name, seen, Frames::kOne);
  Silu(seen);
  return {.x = seen.view.data};
}

// `sum` may be `x`: conv1 is a tile ahead of conv2, so it has no more use for the rows that conv2 adds to.
void CpuOps::AddBranch(const ConvBranch& branch, const Array& x, Array& sum, const Tap& tap) {
  const Profile::Scope timed = Timed("convolution");
  constexpr int64_t kTile = 4;  // rows that conv1 is ahead: conv2 needs one of them
  const Conv3x3Layer &conv1 = branch.conv1, &conv2 = branch.conv2;
  filter1_.Set(conv1.weight, conv1.in, false, compute_.pool);
  filter2_.Set(conv2.weight, conv2.in, false, compute_.pool);
  const bool listens = tap.Wants("norm1") || tap.Wants("conv1") || tap.Wants("norm2") || tap.Wants("conv2");
  const int64_t height = x.dim(0), width = x.dim(1), line = width * conv1.out;
  const int64_t band = listens ? height : BandRows(line, band_floats_);
  Array seen_norm1;
  const Conv3x3Input input1 = Normed(branch.norm1, x, "norm1", seen_norm1, tap);
  Array hidden = BandMemory({std::min(height, band + kTile + 1), width, conv1.out});
  int64_t first = 0, ready = 0;  // rows [first, ready) are in `hidden`
  for (int64_t done = 0, next = 0; done < height; done = next) {
    compute_.cancel.ThrowIfCancelled();
    next = std::min(height, done + band);
    const int64_t ahead = std::min(height, next + kTile);
    Conv3x3(ShapeOf(conv1, x), filter1_, input1,
            {conv1.bias.data(), nullptr, hidden.view.data, first, ready, ahead}, compute_.pool);
    ShowPicture(tap, "conv1", hidden, Frames::kOne);

    Array seen_norm2;
    Conv3x3Input input2 = Normed(branch.norm2, hidden, "norm2", seen_norm2, tap);
    input2.first_row = first;
    const bool apart = tap.Wants("conv2");
    Array result = apart ? New(sum.shape) : sum;
    Conv3x3({conv2.in, conv2.out, height, width}, filter2_, input2,
            {conv2.bias.data(), apart ? nullptr : sum.view.data, result.view.data, 0, done, next},
            compute_.pool);
    if (apart) {
      ShowPicture(tap, "conv2", result, Frames::kOne);
      qwen_image::Add(result.view, sum.view, sum.view, compute_.pool);
    }

    float* const rows = hidden.view.data;
    std::copy(rows + (next - 1 - first) * line, rows + (ahead - first) * line, rows);
    first = next - 1;
    ready = ahead;
  }
  band_memory_ = std::move(hidden);
}

// What the branch before left behind, if it fits: fresh memory costs the system time to clear.
Array CpuOps::BandMemory(const Shape& shape) {
  Array taken = std::exchange(band_memory_, Array());
  if (taken.view.size() != ElementCount(shape)) {
    taken = Array();  // give it back first
    return New(shape);
  }
  return Reshaped(taken, shape);
}

}  // namespace qwen_image
