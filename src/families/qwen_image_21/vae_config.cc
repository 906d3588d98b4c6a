// The VAE's config, and the widths that follow from it.
#include <algorithm>
#include <array>
#include <span>

#include "core/fail.h"
#include "families/qwen_image_21/vae.h"
#include "weights/config_reader.h"

namespace qwen_image::qwen_image_21 {
namespace {

constexpr size_t kLevels = 5;  // 16 pixels per latent

// Of the published VAE.
constexpr std::array kLatentsMean = {
    0.5126,  0.7721,  -0.0631, 1.3506,  -0.7855, -2.1025, -0.3458, 1.3722,  1.8873,  -1.7177, -0.651,
    0.2732,  0.7562,  -0.6163, -1.0277, 3.8363,  2.021,   0.0472,  0.932,   2.0087,  2.4954,  -0.1391,
    -1.4249, 1.8464,  -0.5236, 1.2826,  3.7046,  -1.3035, 2.7286,  -1.4518, -1.9036, -1.9955, -0.0342,
    -1.0265, -0.7636, 3.0555,  0.0746,  -3.0751, -0.1076, 1.7376,  -1.0914, -1.9435, -0.2784, -1.368,
    0.4809,  -0.4433, 0.3764,  0.5729,  -2.0595, 1.096,   -1.326,  -2.0211, -5.0179, 0.5275,  4.0162,
    1.8505,  0.3026,  1.9373,  1.4937,  0.2632,  0.5547,  -1.7121, -0.1562, 0.0304};
constexpr std::array kLatentsStd = {
    3.2001, 3.2936, 3.4321, 3.0091, 3.1061, 4.0379, 4.0705, 3.791,  3.0785, 3.65,   3.9308, 3.0904, 2.8778,
    3.7675, 3.732,  5.0756, 3.2864, 4.0397, 3.1317, 4.0443, 2.9249, 3.9454, 3.0988, 4.2489, 3.4896, 3.8513,
    3.9323, 3.4719, 3.7498, 4.283,  3.5694, 4.2467, 3.9037, 3.2947, 5.077,  3.5075, 3.27,   3.4767, 2.8063,
    5.1125, 3.5327, 4.7833, 3.1286, 4.1819, 3.8527, 3.8312, 3.5605, 4.3875, 3.9624, 4.0168, 3.5643, 4.055,
    5.5614, 4.2963, 4.408,  3.4959, 3.8747, 3.7608, 3.5735, 3.149,  3.7662, 3.6746, 3.4563, 3.8161};

// The class has the published VAE's as defaults.
std::vector<double> NumbersOr(const ConfigReader& config, const char* key, std::span<const double> fallback) {
  return config.Has(key) ? config.Numbers(key) : std::vector<double>(fallback.begin(), fallback.end());
}

// That a block joins.
int64_t FramesOf(bool temporal) { return temporal ? 2 : 1; }

// Widths that diffusers' shortcuts cannot lead across.
void CheckShortcuts(const VaeConfig& c, const std::string& where) {
  const auto check = [&](const char* block, size_t index, const VaeLevel& level, int64_t large,
                         int64_t small) {
    const int64_t values = large * level.folding.frames * level.folding.side * level.folding.side;
    if (values % small == 0) return;
    Fail(
        ErrorKind::kBadInput,
        "{}: {} {} leads from {} to {} channels, and its shortcut cannot share out {} values evenly among {}",
        where, block, index, level.in, level.out, values, small);
  };
  const std::vector<VaeLevel> down = EncoderLevels(c), up = DecoderLevels(c);
  for (size_t i = 0; i < down.size(); ++i) check("down block", i, down[i], down[i].in, down[i].out);
  for (size_t i = 0; i + 1 < up.size(); ++i) check("up block", i, up[i], up[i].out, up[i].in);
}

void CheckLatentStatistics(const VaeConfig& c, const std::string& where) {
  const auto size = static_cast<size_t>(c.z_dim);
  if (c.latents_mean.size() != size || c.latents_std.size() != size) {
    Fail(ErrorKind::kBadInput, "{}: latents_mean and latents_std hold {} and {} values, expected z_dim = {}",
         where, c.latents_mean.size(), c.latents_std.size(), c.z_dim);
  }
  if (std::any_of(c.latents_std.begin(), c.latents_std.end(), [](double s) { return s <= 0; })) {
    Fail(ErrorKind::kBadInput, "{}: latents_std holds a value that is not positive", where);
  }
}

// What other members of the class may be, and this engine does not draw with.
void RefuseOtherKinds(const ConfigReader& config) {
  const auto expect = [&](const char* key, int64_t found, int64_t expected) {
    if (found != expected)
      Fail(ErrorKind::kBadInput, "{}: {} is {}, expected {}", config.where(), key, found, expected);
  };
  expect("in_channels", config.Int("in_channels", 1, 64, kPictureChannels), kPictureChannels);
  expect("out_channels", config.Int("out_channels", 1, 64, kPictureChannels), kPictureChannels);
  expect("patch_size", config.Int("patch_size", 1, 64, 1), 1);
  expect("scale_factor_spatial", config.Int("scale_factor_spatial", 1, 1024, 16), 16);
  if (!config.Bool("is_residual", true)) {
    Fail(ErrorKind::kBadInput, "{}: is_residual is false; the VAE of Qwen-Image-2.1 has shortcuts",
         config.where());
  }
}

void CheckLevels(const VaeConfig& c, const std::string& where) {
  if (c.dim_mult.size() != kLevels || c.temperal_downsample.size() != kLevels - 1) {
    Fail(
        ErrorKind::kBadInput,
        "{}: dim_mult and temperal_downsample hold {} and {} values; the VAE of Qwen-Image-2.1 has {} and {} "
        "(16 pixels per latent)",
        where, c.dim_mult.size(), c.temperal_downsample.size(), kLevels, kLevels - 1);
  }
}

}  // namespace

std::vector<VaeLevel> EncoderLevels(const VaeConfig& config) {
  std::vector<VaeLevel> levels;
  int64_t width = config.base_dim;
  for (size_t i = 0; i < config.dim_mult.size(); ++i) {
    const bool resamples = i + 1 < config.dim_mult.size();
    VaeLevel level{
        .in = width, .out = config.base_dim * config.dim_mult[i], .folding = {}, .resamples = resamples};
    if (resamples) level.folding = {.side = 2, .frames = FramesOf(config.temperal_downsample[i])};
    width = level.out;
    levels.push_back(level);
  }
  return levels;
}

std::vector<VaeLevel> DecoderLevels(const VaeConfig& config) {
  std::vector<VaeLevel> levels;
  int64_t width = config.decoder_base_dim * config.dim_mult.back();
  for (size_t i = config.dim_mult.size(); i-- > 0;) {
    VaeLevel level{
        .in = width, .out = config.decoder_base_dim * config.dim_mult[i], .folding = {}, .resamples = i > 0};
    if (i > 0) level.folding = {.side = 2, .frames = FramesOf(config.temperal_downsample[i - 1])};
    width = level.out;
    levels.push_back(level);
  }
  return levels;
}

VaeConfig ConfigOfTensors(const WeightStore& store) {
  VaeConfig c;
  if (const int64_t width = store.Rows("encoder.conv_in.bias"); width > 0) c.base_dim = width;
  c.z_dim = store.Rows("post_quant_conv.bias");
  if (c.z_dim != static_cast<int64_t>(kLatentsMean.size())) {
    Fail(ErrorKind::kBadInput,
         "{}: no config.json beside the VAE, and its {} latent channels are not those of Qwen-Image-2.1 ({})",
         store.path().string(), c.z_dim, kLatentsMean.size());
  }
  c.latents_mean.assign(kLatentsMean.begin(), kLatentsMean.end());
  c.latents_std.assign(kLatentsStd.begin(), kLatentsStd.end());
  if (const int64_t resnets = store.CountModules("encoder.down_blocks.0.resnets."); resnets > 0)
    c.num_res_blocks = resnets;
  for (size_t level = 0; level < kLevels; ++level) {
    const int64_t width = store.Rows(fmt::format("encoder.down_blocks.{}.resnets.0.conv1.bias", level));
    if (width >= c.base_dim) c.dim_mult[level] = width / c.base_dim;
  }
  const int64_t decoder_width = store.Rows("decoder.norm_out.gamma");
  if (decoder_width >= c.dim_mult[0]) c.decoder_base_dim = decoder_width / c.dim_mult[0];

  std::vector<bool> temporal;
  for (size_t level = 0; level + 1 < kLevels; ++level) {
    const std::string name = fmt::format("encoder.down_blocks.{}.downsampler.time_conv.weight", level);
    temporal.push_back(store.Find(name) != nullptr);
  }
  if (std::find(temporal.begin(), temporal.end(), true) != temporal.end()) c.temperal_downsample = temporal;
  CheckShortcuts(c, store.path().string());
  return c;
}

VaeConfig ReadVaeConfig(const WeightStore& store) {
  if (store.config().is_null()) return ConfigOfTensors(store);
  const ConfigReader config(store.config(), store.config_path());
  constexpr int64_t kMaxWidth = 1 << 16;
  VaeConfig c;
  c.base_dim = config.Int("base_dim", 1, kMaxWidth, c.base_dim);
  // "null" stands for the encoder's; a config that does not say it has the class's default.
  const bool as_encoder = store.config().contains("decoder_base_dim") && !config.Has("decoder_base_dim");
  c.decoder_base_dim =
      as_encoder ? c.base_dim : config.Int("decoder_base_dim", 1, kMaxWidth, c.decoder_base_dim);
  c.z_dim = config.Int("z_dim", 1, 4096, c.z_dim);
  if (config.Has("dim_mult")) c.dim_mult = config.Ints("dim_mult", 1, 64);
  c.num_res_blocks = config.Int("num_res_blocks", 1, 64, c.num_res_blocks);
  if (config.Has("temperal_downsample")) c.temperal_downsample = config.Bools("temperal_downsample");
  c.latents_mean = NumbersOr(config, "latents_mean", kLatentsMean);
  c.latents_std = NumbersOr(config, "latents_std", kLatentsStd);
  RefuseOtherKinds(config);
  CheckLatentStatistics(c, config.where());
  CheckLevels(c, config.where());
  CheckShortcuts(c, config.where());
  return c;
}

}  // namespace qwen_image::qwen_image_21
