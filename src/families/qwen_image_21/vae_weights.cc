// The VAE's table of weights.
#include <fmt/format.h>

#include "families/qwen_image_21/vae.h"

namespace qwen_image::qwen_image_21 {
namespace {

class VaeBinder : public VaeBlockBinder {
 public:
  VaeBinder(const VaeConfig& config, WeightStore& store) : VaeBlockBinder(store), config_(config) {}

  VaeWeights::Encoder Encoder() {
    VaeWeights::Encoder encoder;
    encoder.conv_in = CausalConv3x3("encoder.conv_in", config_.base_dim, kPictureChannels);
    int64_t width = config_.base_dim;
    for (const VaeLevel& level : EncoderLevels(config_)) {
      const std::string name = fmt::format("encoder.down_blocks.{}", encoder.down_blocks.size());
      VaeWeights::DownBlock block{
          .level = level, .resnets = Resnets(name, config_.num_res_blocks, level), .downsampler = {}};
      if (level.resamples)
        block.downsampler = PlaneConv(name + ".downsampler.resample.1", level.out, level.out, 3);
      width = level.out;
      encoder.down_blocks.push_back(std::move(block));
    }
    encoder.mid_block = MidBlock("encoder.mid_block", width);
    encoder.norm_out = Gamma("encoder.norm_out", width);
    encoder.conv_out = CausalConv3x3("encoder.conv_out", 2 * config_.z_dim, width);
    return encoder;
  }

  VaeWeights::Decoder Decoder() {
    const std::vector<VaeLevel> levels = DecoderLevels(config_);
    VaeWeights::Decoder decoder;
    decoder.conv_in = CausalConv3x3("decoder.conv_in", levels.front().in, config_.z_dim);
    decoder.mid_block = MidBlock("decoder.mid_block", levels.front().in);
    for (const VaeLevel& level : levels) {
      const std::string name = fmt::format("decoder.up_blocks.{}", decoder.up_blocks.size());
      VaeWeights::UpBlock block{
          .level = level, .resnets = Resnets(name, config_.num_res_blocks + 1, level), .upsampler = {}};
      if (level.resamples)
        block.upsampler = PlaneConv3x3(name + ".upsampler.resample.1", level.out, level.out);
      decoder.up_blocks.push_back(std::move(block));
    }
    decoder.norm_out = Gamma("decoder.norm_out", levels.back().out);
    decoder.conv_out = CausalConv3x3("decoder.conv_out", kPictureChannels, levels.back().out);
    return decoder;
  }

 private:
  std::vector<VaeResidualBlock> Resnets(const std::string& name, int64_t count, const VaeLevel& level) {
    std::vector<VaeResidualBlock> resnets;
    for (int64_t i = 0; i < count; ++i) {
      resnets.push_back(
          ResidualBlock(fmt::format("{}.resnets.{}", name, i), i == 0 ? level.in : level.out, level.out));
    }
    return resnets;
  }

  // Plain convolutions. The binder drops the one temporal slice that some tools write.
  Shape CausalShape(const std::string&, int64_t out, int64_t in, int64_t kernel) const override {
    return {out, in, kernel, kernel};
  }

  const VaeConfig& config_;
};

}  // namespace

VaeWeights::VaeWeights(const VaeConfig& config, WeightStore& store) {
  VaeBinder binder(config, store);
  encoder = binder.Encoder();
  quant_conv = binder.CausalConv("quant_conv", 2 * config.z_dim, 2 * config.z_dim, 1);
  post_quant_conv = binder.CausalConv("post_quant_conv", config.z_dim, config.z_dim, 1);
  decoder = binder.Decoder();
  binder.Finish();
}

}  // namespace qwen_image::qwen_image_21
