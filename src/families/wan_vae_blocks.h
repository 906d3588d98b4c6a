// The parts that all VAEs made from the video model Wan have in common: their weights and their forward
// passes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint.h"
#include "ops/bind_conv.h"
#include "ops/interface.h"
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

// A pass through encoder or decoder: every method is a module's forward. How a block of a level is run is the
// family's: `run(block, x, tap)`.
class VaeBlockPass {
 public:
  VaeBlockPass(Ops& ops, const Compute& compute) : ops_(ops), compute_(compute) {}

 protected:
  template <typename Weights, typename RunBlock>
  Array EncodeWith(const Weights& weights, const Array& image, const Tap& tap, const RunBlock& run);
  template <typename Weights, typename RunBlock>
  Array DecodeWith(const Weights& weights, const Array& latents, const Tap& tap, const RunBlock& run);

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

template <typename Weights, typename RunBlock>
Array VaeBlockPass::EncodeWith(const Weights& weights, const Array& image, const Tap& tap,
                               const RunBlock& run) {
  const auto& w = weights.encoder;
  const Tap encoder = tap.Under("encoder.");
  Array x = ops_.Convolve(w.conv_in, image, false);
  Show(encoder, "conv_in", x);
  for (size_t i = 0; i < w.down_blocks.size(); ++i) {
    compute_.Continue(i, w.down_blocks.size());
    run(w.down_blocks[i], x, encoder.Under("down_blocks.", static_cast<int64_t>(i), ""));
  }
  Run(w.mid_block, x, encoder.Under("mid_block"));
  x = Head(w.norm_out, w.conv_out, x, encoder);
  Array moments = ops_.Convolve(weights.quant_conv, x, 1, 0);
  Show(tap, "quant_conv", moments);
  return moments;
}

template <typename Weights, typename RunBlock>
Array VaeBlockPass::DecodeWith(const Weights& weights, const Array& latents, const Tap& tap,
                               const RunBlock& run) {
  const auto& w = weights.decoder;
  const Tap decoder = tap.Under("decoder.");
  Array z = ops_.Convolve(weights.post_quant_conv, latents, 1, 0);
  Show(tap, "post_quant_conv", z);
  Array x = ops_.Convolve(w.conv_in, z, false);
  Show(decoder, "conv_in", x);
  Run(w.mid_block, x, decoder.Under("mid_block"));
  for (size_t i = 0; i < w.up_blocks.size(); ++i) {
    compute_.Continue(i, w.up_blocks.size());
    run(w.up_blocks[i], x, decoder.Under("up_blocks.", static_cast<int64_t>(i), ""));
  }
  return Head(w.norm_out, w.conv_out, x, decoder);
}

}  // namespace qwen_image
