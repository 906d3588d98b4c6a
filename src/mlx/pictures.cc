// Convolutions on MLX, whose channels come last, as the host's do: only pictures that come and go, and those
// that listeners see, are turned. Always in float32. Weights are copied as they are used: a convolution takes
// far longer than that.
#include "mlx/operations.h"
#include "mlx/values.h"

namespace qwen_image::on_mlx {
namespace {

// [h, w, c] ↔ [1, h, w, c]
array Batch(const Array& x) { return mx::expand_dims(Of(x), 0); }
Array Picture(const array& x) { return Wrapped(mx::squeeze(x, 0)); }

array ChannelsFirst(const Array& x, Frames frames) {
  const array plane = mx::transpose(Batch(x), {0, 3, 1, 2});
  return frames == Frames::kOne ? mx::expand_dims(plane, 2) : plane;
}

// [1, c, (1,) h, w] → [h, w, c]
Array ChannelsLast(const array& x) {
  const mx::Shape plane = {1, x.shape(1), x.shape(-2), x.shape(-1)};
  return Picture(mx::transpose(mx::reshape(x, plane), {0, 2, 3, 1}));
}

// The last temporal slice of a kernel [out, in · slices · 3 · 3] as [out, 3, 3, in].
array FilterOf(const Conv3x3Layer& w) {
  const int64_t slices = w.weight.cols / (9 * w.in);
  Tensor all({w.out, w.in, slices, 3, 3});
  for (int64_t o = 0; o < w.out; ++o)
    DecodeRow(w.weight, o, 0, w.weight.cols, all.data() + o * w.weight.cols);
  const int in = static_cast<int>(w.in), out = static_cast<int>(w.out), last = static_cast<int>(slices) - 1;
  const array slice = mx::slice(ToDevice(all), {0, 0, last, 0, 0}, {out, in, last + 1, 3, 3});
  return mx::transpose(mx::squeeze(slice, 2), {0, 2, 3, 1});
}

array SameConvolution(const Conv3x3Layer& layer, const array& x) {
  return mx::conv2d(x, FilterOf(layer), {1, 1}, {1, 1}) + ToDevice(layer.bias);
}

// x / max(|x|, 1e-12) · √channels · gamma: the mean square of a pixel of that length is the epsilon.
array NormOf(const std::vector<float>& gamma, const array& x) {
  return mx::fast::rms_norm(x, ToDevice(gamma), 1e-24f / static_cast<float>(gamma.size()));
}

}  // namespace

Array MlxOps::FromPicture(const Tensor& x) { return ChannelsLast(ToDevice(x)); }

Tensor MlxOps::ToPicture(const Array& x, Frames frames) { return on_mlx::ToHost(ChannelsFirst(x, frames)); }

void MlxOps::ShowPicture(const Tap& tap, std::string_view name, Array& x, Frames frames) {
  if (!tap.Wants(name)) return;
  array seen = ChannelsFirst(x, frames);
  TapArray(tap, name, seen);
  x = ChannelsLast(seen);
}

Array MlxOps::Convolve(const Conv& layer, const Array& x, int64_t stride, int64_t pad_after) {
  const array weight = ToDevice(layer.weight.data(), {layer.out, layer.kernel, layer.kernel, layer.in});
  const int step = static_cast<int>(stride), pad = static_cast<int>(pad_after);
  const array padded = pad == 0 ? Batch(x) : mx::pad(Batch(x), {{0, 0}, {0, pad}, {0, pad}, {0, 0}});
  return Picture(mx::conv2d(padded, weight, {step, step}) + ToDevice(layer.bias));
}

Array MlxOps::Convolve(const Conv3x3Layer& layer, const Array& x, bool upsample) {
  return Picture(SameConvolution(layer, upsample ? mx::repeat(mx::repeat(Batch(x), 2, 1), 2, 2) : Batch(x)));
}

Array MlxOps::ChannelNorm(const std::vector<float>& gamma, const Array& x) {
  return Wrapped(NormOf(gamma, Of(x)));
}

Array MlxOps::NormSiluConvolve(const std::vector<float>& gamma, const char* norm, const Conv3x3Layer& layer,
                               const Array& x, const Tap& tap) {
  Array normed = ChannelNorm(gamma, x);
  ShowPicture(tap, norm, normed, Frames::kOne);
  return Picture(SameConvolution(layer, on_mlx::Silu(Batch(normed))));
}

void MlxOps::AddBranch(const ConvBranch& branch, const Array& x, Array& sum, const Tap& tap) {
  Array hidden = NormSiluConvolve(branch.norm1, "norm1", branch.conv1, x, tap);
  ShowPicture(tap, "conv1", hidden, Frames::kOne);
  hidden = NormSiluConvolve(branch.norm2, "norm2", branch.conv2, hidden, tap);
  ShowPicture(tap, "conv2", hidden, Frames::kOne);
  Set(sum, Of(hidden) + Of(sum));
}

Array MlxOps::FoldedMeans(const Folding& folding, const Array& x, int64_t channels) {
  const int side = static_cast<int>(folding.side), frames = static_cast<int>(folding.frames);
  const int height = static_cast<int>(x.dim(0)) / side, width = static_cast<int>(x.dim(1)) / side,
            large = static_cast<int>(x.dim(2)), small = static_cast<int>(channels);
  const array blocks = mx::reshape(Of(x), {height, side, width, side, large});
  const array pixels =
      mx::reshape(mx::transpose(blocks, {0, 2, 4, 1, 3}), {height, width, large, 1, side * side});
  const array video = mx::pad(pixels, {{0, 0}, {0, 0}, {0, 0}, {frames - 1, 0}, {0, 0}});
  return Wrapped(
      mx::mean(mx::reshape(video, {height, width, small, large * frames * side * side / small}), -1));
}

void MlxOps::AddUnfolded(const Folding& folding, const Array& x, Array& sum, const char* name,
                         const Tap& tap) {
  const int side = static_cast<int>(folding.side), frames = static_cast<int>(folding.frames);
  const int height = static_cast<int>(x.dim(0)), width = static_cast<int>(x.dim(1)),
            small = static_cast<int>(x.dim(2)), large = static_cast<int>(sum.dim(2));
  const array shares = mx::repeat(Of(x), large * frames * side * side / small, 2);
  const array video = mx::reshape(shares, {height, width, large, frames, side, side});
  const array last = mx::squeeze(
      mx::slice(video, {0, 0, 0, frames - 1, 0, 0}, {height, width, large, frames, side, side}), 3);
  Array added =
      Wrapped(mx::reshape(mx::transpose(last, {0, 3, 1, 4, 2}), {height * side, width * side, large}));
  ShowPicture(tap, name, added, Frames::kOne);
  Set(sum, Of(sum) + Of(added));
}

}  // namespace qwen_image::on_mlx
