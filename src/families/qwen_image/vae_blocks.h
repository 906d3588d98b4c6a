// The parts that the VAEs of Qwen-Image and of Qwen-Image-2.1 have in common: their weights and their forward
// passes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint.h"
#include "ops/bind_conv.h"
#include "ops/ops.h"
#include "weights/binder.h"
#include "weights/store.h"

namespace qwen_image {

struct VaeResidualBlock {
  ConvBranch branch;                  // norm1, conv1, norm2, conv2
  std::optional<Conv> conv_shortcut;  // when the width changes
};
struct VaeAttentionBlock {
  std::vector<float> norm;
  Conv to_qkv, proj;
};
struct VaeMidBlock {
  VaeResidualBlock resnet0;
  VaeAttentionBlock attention;
  VaeResidualBlock resnet1;
};

// Takes weights out of the store; each method is the table of one module.
class VaeBlockBinder {
 public:
  explicit VaeBlockBinder(WeightStore& store) : store_(store), binder_(store) {}
  virtual ~VaeBlockBinder() = default;

  // Convolutions that a video model has made causal, and such as never saw frames.
  Conv CausalConv(const std::string& name, int64_t out, int64_t in, int64_t kernel);
  Conv3x3Layer CausalConv3x3(const std::string& name, int64_t out, int64_t in);
  Conv PlaneConv(const std::string& name, int64_t out, int64_t in, int64_t kernel);
  Conv3x3Layer PlaneConv3x3(const std::string& name, int64_t out, int64_t in);

  std::vector<float> Gamma(const std::string& name, int64_t channels);
  VaeResidualBlock ResidualBlock(const std::string& name, int64_t in, int64_t out);
  VaeAttentionBlock AttentionBlock(const std::string& name, int64_t channels);
  VaeMidBlock MidBlock(const std::string& name, int64_t channels);

  void Finish();

 protected:
  const WeightStore& store() const { return store_; }

 private:
  // Of a causal convolution's weight.
  virtual Shape CausalShape(const std::string& name, int64_t out, int64_t in, int64_t kernel) const = 0;

  const WeightStore& store_;
  WeightBinder binder_;
};

// A pass through encoder or decoder: every method is a module's forward.
class VaeBlockPass {
 public:
  VaeBlockPass(Ops& ops, const Compute& compute) : ops_(ops), compute_(compute) {}

 protected:
  // Without conv_shortcut x is written to, else it gets new memory.
  void Run(const VaeResidualBlock& w, Array& x, const Tap& tap);
  void Run(const VaeAttentionBlock& w, Array& x, const Tap& tap);
  void Run(const VaeMidBlock& w, Array& x, const Tap& tap);
  // resnets.0, resnets.1, …
  void Run(const std::vector<VaeResidualBlock>& resnets, Array& x, const Tap& tap);
  // resample.1 of a downsampler, and of an upsampler.
  void Downsample(const Conv& conv, Array& x, const Tap& tap);
  void Upsample(const Conv3x3Layer& conv, Array& x, const Tap& tap);
  // norm_out, SiLU and conv_out: the end of both encoder and decoder.
  Array Head(const std::vector<float>& norm_out, const Conv3x3Layer& conv_out, const Array& x,
             const Tap& tap);

  void Show(const Tap& tap, std::string_view name, Array& x, Frames frames = Frames::kOne);
  // The end of a module whose result is large: a device that collects work computes it now.
  void End(Array& x, const Tap& tap);

  Ops& ops_;
  const Compute& compute_;
};

// To [−1, 1]; NaN stays NaN.
void ClampPixels(Tensor& image);

}  // namespace qwen_image
