// The VAE's config and its table of weights.
#include <algorithm>

#include "core/fail.h"
#include "families/qwen_image/vae.h"
#include "weights/config_reader.h"

namespace qwen_image {

namespace {

void CheckPictureChannels(const VaeConfig& c, const std::string& where) {
  if (c.input_channels == 3) return;
  Fail(ErrorKind::kBadInput,
       "{}: the VAE has {} picture channels; only RGB is supported (4 belong to Qwen-Image-Layered, which is "
       "not "
       "supported yet)",
       where, c.input_channels);
}

// The published VAE, whose single files bring no config.
VaeConfig VaeConfigOfTensors(const WeightStore& store) {
  VaeConfig c;
  c.base_dim = store.Rows("encoder.conv_in.bias");
  if (const WeightTensor* conv_in = store.Find("encoder.conv_in.weight");
      conv_in && conv_in->shape().size() == 5)
    c.input_channels = conv_in->shape()[1];
  c.z_dim = store.Rows("post_quant_conv.bias");
  const int64_t resnets = store.CountModules("decoder.up_blocks.0.resnets.");
  if (resnets > 1) c.num_res_blocks = resnets - 1;
  for (size_t level = 0; level < c.dim_mult.size() && c.base_dim > 0; ++level) {
    const int64_t width = store.Rows(fmt::format("decoder.up_blocks.{}.resnets.0.conv1.bias", level));
    if (width >= c.base_dim) c.dim_mult[c.dim_mult.size() - 1 - level] = width / c.base_dim;
  }
  c.latents_mean = {-0.7571, -0.7089, -0.9113, 0.1075,  -0.1745, 0.9653,  -0.1517, 1.5508,
                    0.4134,  -0.0715, 0.5517,  -0.3632, -0.1922, -0.9497, 0.2503,  -0.2921};
  c.latents_std = {2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743,
                   3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160};
  if (c.z_dim != static_cast<int64_t>(c.latents_mean.size())) {
    Fail(ErrorKind::kBadInput,
         "{}: no config.json beside the VAE, and its {} latent channels are not those of Qwen-Image ({})",
         store.path().string(), c.z_dim, c.latents_mean.size());
  }
  CheckPictureChannels(c, store.path().string());
  return c;
}

}  // namespace

VaeConfig ReadVaeConfig(const WeightStore& store) {
  if (store.config().is_null()) return VaeConfigOfTensors(store);
  const ConfigReader config(store.config(), store.config_path());

  VaeConfig c;
  c.base_dim = config.Int("base_dim", 1, 1 << 16, c.base_dim);
  c.z_dim = config.Int("z_dim", 1, 4096, c.z_dim);
  c.input_channels = config.Int("input_channels", 1, 64, c.input_channels);
  if (config.Has("dim_mult")) c.dim_mult = config.Ints("dim_mult", 1, 64);
  c.num_res_blocks = config.Int("num_res_blocks", 1, 64, c.num_res_blocks);
  if (config.Has("attn_scales")) c.attn_scales = config.Numbers("attn_scales");
  c.latents_mean = config.Numbers("latents_mean");
  c.latents_std = config.Numbers("latents_std");

  const auto size = static_cast<size_t>(c.z_dim);
  if (c.latents_mean.size() != size || c.latents_std.size() != size) {
    Fail(ErrorKind::kBadInput, "{}: latents_mean and latents_std hold {} and {} values, expected z_dim = {}",
         config.where(), c.latents_mean.size(), c.latents_std.size(), c.z_dim);
  }
  if (std::any_of(c.latents_std.begin(), c.latents_std.end(), [](double s) { return s <= 0; })) {
    Fail(ErrorKind::kBadInput, "{}: latents_std holds a value that is not positive", config.where());
  }
  if (c.dim_mult.size() != 4) {
    Fail(ErrorKind::kBadInput, "{}: dim_mult has {} levels; Qwen-Image's VAE has 4 (8 pixels per latent)",
         config.where(), c.dim_mult.size());
  }
  CheckPictureChannels(c, config.where());
  return c;
}

namespace {

class VaeBinder : public VaeBlockBinder {
 public:
  VaeBinder(const VaeConfig& config, WeightStore& store) : VaeBlockBinder(store), config_(config) {}

  VaeWeights::Encoder Encoder() {
    const std::vector<int64_t>& mult = config_.dim_mult;
    VaeWeights::Encoder encoder;
    encoder.conv_in = CausalConv3x3("encoder.conv_in", config_.base_dim, config_.input_channels);
    int64_t width = config_.base_dim, index = 0;
    double scale = 1.0;
    const auto next_name = [&] { return fmt::format("encoder.down_blocks.{}", index++); };
    for (size_t level = 0; level < mult.size(); ++level) {
      const int64_t out = config_.base_dim * mult[level];
      const bool attention = std::count(config_.attn_scales.begin(), config_.attn_scales.end(), scale) > 0;
      for (int64_t i = 0; i < config_.num_res_blocks; ++i) {
        encoder.down_blocks.emplace_back(ResidualBlock(next_name(), width, out));
        if (attention) encoder.down_blocks.emplace_back(AttentionBlock(next_name(), out));
        width = out;
      }
      if (level + 1 == mult.size()) break;
      encoder.down_blocks.emplace_back(
          VaeWeights::Downsample{PlaneConv(next_name() + ".resample.1", width, width, 3)});
      scale /= 2.0;
    }
    encoder.mid_block = MidBlock("encoder.mid_block", width);
    encoder.norm_out = Gamma("encoder.norm_out", width);
    encoder.conv_out = CausalConv3x3("encoder.conv_out", 2 * config_.z_dim, width);
    return encoder;
  }

  VaeWeights::Decoder Decoder() {
    const std::vector<int64_t> mult(config_.dim_mult.rbegin(), config_.dim_mult.rend());
    int64_t width = config_.base_dim * mult.front();
    VaeWeights::Decoder decoder;
    decoder.conv_in = CausalConv3x3("decoder.conv_in", width, config_.z_dim);
    decoder.mid_block = MidBlock("decoder.mid_block", width);
    for (size_t level = 0; level < mult.size(); ++level) {
      const std::string name = fmt::format("decoder.up_blocks.{}", level);
      const int64_t out = config_.base_dim * mult[level];
      VaeWeights::UpBlock block;
      for (int64_t i = 0; i <= config_.num_res_blocks; ++i) {
        block.resnets.push_back(ResidualBlock(fmt::format("{}.resnets.{}", name, i), width, out));
        width = out;
      }
      if (level + 1 < mult.size()) {
        block.upsampler = PlaneConv3x3(name + ".upsamplers.0.resample.1", width / 2, width);
        width /= 2;
      }
      decoder.up_blocks.push_back(std::move(block));
    }
    decoder.norm_out = Gamma("decoder.norm_out", width);
    decoder.conv_out = CausalConv3x3("decoder.conv_out", config_.input_channels, width);
    return decoder;
  }

 private:
  // Of its temporal slices only the last one sees the single frame.
  Shape CausalShape(const std::string&, int64_t out, int64_t in, int64_t kernel) const override {
    return {out, in, kernel, kernel, kernel};
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

}  // namespace qwen_image
