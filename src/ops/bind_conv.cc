#include "ops/bind_conv.h"

namespace qwen_image {

// [out, in, k, k] becomes [out, k, k, in].
Conv BindConv(WeightBinder& binder, const std::string& name, const Shape& shape) {
  const int64_t out = shape[0], in = shape[1], kernel = shape.back(), area = kernel * kernel;
  const int64_t slices = shape.size() == 5 ? shape[2] : 1;
  Conv conv{
      .in = in, .out = out, .kernel = kernel, .weight = {}, .bias = binder.Floats(name + ".bias", {out})};
  const std::vector<float> all = binder.Floats(name + ".weight", shape);
  if (all.empty()) return conv;
  conv.weight.resize(static_cast<size_t>(out * area * in));
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t i = 0; i < in; ++i) {
      const float* live = all.data() + ((o * in + i) * slices + slices - 1) * area;
      for (int64_t k = 0; k < area; ++k) conv.weight[static_cast<size_t>((o * area + k) * in + i)] = live[k];
    }
  }
  return conv;
}

Conv3x3Layer BindConv3x3(WeightBinder& binder, const WeightStore& store, const std::string& name,
                         const Shape& shape) {
  Conv3x3Layer conv{.in = shape[1],
                    .out = shape[0],
                    .weight = {},
                    .bias = binder.Floats(name + ".bias", {shape[0]}),
                    .converted = {}};
  const WeightTensor* stored = store.Find(name + ".weight");
  if (!stored || (!stored->quantized() && !stored->channels_last())) {
    conv.weight = binder.Matrix(name + ".weight", shape);
    return conv;
  }
  conv.converted = std::make_shared<std::vector<float>>(binder.Floats(name + ".weight", shape));
  conv.weight = {conv.converted->data(), DType::kF32, conv.out, ElementCount(shape) / conv.out};
  return conv;
}

}  // namespace qwen_image
