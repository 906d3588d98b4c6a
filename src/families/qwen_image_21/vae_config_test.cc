// Configs and weights that do not fit, or bring no config.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "families/qwen_image_21/vae.h"
#include "families/qwen_image_21/vae_testing.h"

namespace qwen_image::qwen_image_21 {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Refusal(const VaeFiles& files) {
  return MessageOf(ErrorKind::kBadInput, [&] { Vae vae(files.Open()); });
}

TEST(VaeConfig, IsReadFromTheFile) {
  const Vae vae(VaeFiles().Open());
  const VaeConfig& c = vae.config();
  EXPECT_EQ(c.base_dim, 3);
  EXPECT_EQ(c.decoder_base_dim, 2);
  EXPECT_EQ(c.z_dim, 5);
  EXPECT_EQ(c.dim_mult, (std::vector<int64_t>{1, 1, 2, 4, 4}));
  EXPECT_EQ(c.num_res_blocks, 1);
  EXPECT_EQ(c.temperal_downsample, (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ(c.latents_std.back(), 1.1);
  EXPECT_EQ(c.scale_factor(), 16);
}

TEST(VaeConfig, WhatIsNotSupportedIsRefused) {
  struct Case {
    const char *change, *message;
  };
  const Case cases[] = {
      {R"({"base_dim": 0})", "\"base_dim\" is 0"},
      {R"({"base_dim": 1e300})", "\"base_dim\" is 1e+300"},
      {R"({"base_dim": "3"})", "\"base_dim\" is \"3\""},
      {R"({"decoder_base_dim": -2})", "\"decoder_base_dim\" is -2"},
      {R"({"z_dim": 6})", "hold 5 and 5 values, expected z_dim = 6"},
      {R"({"z_dim": 100000})", "\"z_dim\" is 100000"},
      {R"({"dim_mult": [1, 2, 4, 4]})", "dim_mult and temperal_downsample hold 4 and 4 values"},
      {R"({"dim_mult": []})", "hold 0 and 4 values"},
      {R"({"dim_mult": [1, 1, 2, 4, 0]})", "\"dim_mult\" is 0"},
      {R"({"dim_mult": 7})", "\"dim_mult\" is not a list"},
      {R"({"dim_mult": [1, 1, 2, 2, 4]})", "down block 4 leads from 6 to 12 channels"},
      {R"({"dim_mult": [1, 1, 8, 8, 8]})", "up block 3 leads from 16 to 2 channels"},
      {R"({"temperal_downsample": [true]})", "hold 5 and 1 values"},
      {R"({"temperal_downsample": [1, 1, 0, 1]})", "\"temperal_downsample\" holds 1"},
      {R"({"num_res_blocks": 1000000})", "\"num_res_blocks\" is 1000000"},
      {R"({"latents_mean": null})", "hold 64 and 5 values, expected z_dim = 5"},
      {R"({"latents_std": [1, 2]})", "hold 5 and 2 values"},
      {R"({"latents_std": [1, 2, 0, 1, 1]})", "not positive"},
      {R"({"in_channels": 3})", "in_channels is 3, expected 4"},
      {R"({"out_channels": 12})", "out_channels is 12, expected 4"},
      {R"({"patch_size": 2})", "patch_size is 2, expected 1"},
      {R"({"scale_factor_spatial": 8})", "scale_factor_spatial is 8, expected 16"},
      {R"({"is_residual": false})", "is_residual is false"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.change);
    VaeFiles files;
    files.config.update(Json::parse(c.change));
    EXPECT_THAT(Refusal(files), AllOf(HasSubstr("config.json"), HasSubstr(c.message)));
  }
}

TEST(VaeConfig, NullStandsForTheEncodersWidth) {
  VaeFiles files;
  files.config["decoder_base_dim"] = nullptr;
  EXPECT_THAT(Refusal(files),
              HasSubstr("decoder.conv_in.weight has shape [8, 5, 3, 3], expected [12, 5, 3, 3]"));
}

TEST(VaeWeights, AllThatIsMissingOrMisshapenIsListed) {
  VaeFiles files;
  files.weights.erase("encoder.down_blocks.1.resnets.0.norm1.gamma");
  files.weights.erase("decoder.up_blocks.2.upsampler.resample.1.bias");
  files.Zero("quant_conv.weight", {10, 9, 1, 1});
  files.weights.at("decoder.conv_out.weight").shape = {4, 1, 2, 3, 3};
  files.Zero("decoder.up_blocks.4.upsampler.resample.1.weight", {2, 2, 3, 3});
  EXPECT_THAT(Refusal(files),
              AllOf(HasSubstr("2 missing, 2 of a wrong shape, 0 not readable, 1 not expected"),
                    HasSubstr("encoder.down_blocks.1.resnets.0.norm1.gamma is missing"),
                    HasSubstr("decoder.up_blocks.2.upsampler.resample.1.bias is missing"),
                    HasSubstr("quant_conv.weight has shape [10, 9, 1, 1], expected [10, 10, 1, 1]"),
                    HasSubstr("decoder.conv_out.weight has shape [4, 1, 2, 3, 3], expected [4, 2, 3, 3]"),
                    HasSubstr("decoder.up_blocks.4.upsampler.resample.1.weight is not expected")));
}

// As many latent channels as the published VAE has, whose statistics then count.
VaeFiles WithPublishedLatents() {
  VaeFiles files;
  for (const char* key : {"latents_mean", "latents_std", "z_dim"}) files.config.erase(key);  // the defaults
  files.Zero("encoder.conv_out.weight", {128, 12, 3, 3});
  files.Zero("encoder.conv_out.bias", {128});
  files.Zero("quant_conv.weight", {128, 128, 1, 1});
  files.Zero("quant_conv.bias", {128});
  files.Zero("post_quant_conv.weight", {64, 64, 1, 1});
  files.Zero("post_quant_conv.bias", {64});
  files.Zero("decoder.conv_in.weight", {8, 64, 3, 3});
  return files;
}

TEST(VaeWithoutConfig, SizesAreReadOffTheTensors) {
  const Vae vae(WithPublishedLatents().Open());  // they fit
  const VaeConfig c = ConfigOfTensors(vae.store());
  EXPECT_EQ(c.base_dim, 3);
  EXPECT_EQ(c.decoder_base_dim, 2);
  EXPECT_EQ(c.dim_mult, (std::vector<int64_t>{1, 1, 2, 4, 4}));
  EXPECT_EQ(c.num_res_blocks, 1);
  EXPECT_EQ(c.temperal_downsample, (std::vector<bool>{false, true, true, true}));
  ASSERT_EQ(c.latents_mean.size(), 64u);
  ASSERT_EQ(c.latents_std.size(), 64u);
  EXPECT_EQ(c.latents_mean, vae.config().latents_mean);
  EXPECT_EQ(c.latents_mean[0], 0.5126);
  EXPECT_EQ(c.latents_std[63], 3.8161);
}

TEST(VaeWithoutConfig, TimeConvTellsWhereFramesAreJoined) {
  VaeFiles files = WithPublishedLatents();
  for (const char* tensor : {"weight", "bias"}) {
    files.weights.erase(std::string("encoder.down_blocks.1.downsampler.time_conv.") + tensor);
    files.weights.erase(std::string("decoder.up_blocks.2.upsampler.time_conv.") + tensor);
  }
  EXPECT_EQ(ConfigOfTensors(files.Open()).temperal_downsample, (std::vector<bool>{false, false, true, true}));
  std::erase_if(files.weights,
                [](const auto& item) { return item.first.find(".time_conv.") != std::string::npos; });
  EXPECT_EQ(ConfigOfTensors(files.Open()).temperal_downsample, (std::vector<bool>{false, true, true, true}));
}

TEST(VaeWithoutConfig, OtherLatentsAreRefused) {
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [] { ConfigOfTensors(VaeFiles().Open()); }),
              HasSubstr("its 5 latent channels are not those of Qwen-Image-2.1 (64)"));
}

// Then the binder lists it; nothing may become 0.
TEST(VaeWithoutConfig, WhatIsMissingIsTakenForPublished) {
  const auto without = [](const char* name) {
    VaeFiles files = WithPublishedLatents();
    files.weights.erase(name);
    return ConfigOfTensors(files.Open());
  };
  EXPECT_EQ(without("decoder.norm_out.gamma").decoder_base_dim, 144);
  EXPECT_EQ(without("encoder.down_blocks.3.resnets.0.conv1.bias").dim_mult,
            (std::vector<int64_t>{1, 1, 2, 8, 4}));
  VaeFiles files = WithPublishedLatents();
  for (int level = 0; level < 5; ++level)
    files.weights.erase("encoder.down_blocks." + std::to_string(level) + ".resnets.0.conv1.bias");
  files.weights.erase("encoder.conv_in.bias");
  EXPECT_EQ(ConfigOfTensors(files.Open()).base_dim, 96);
}

}  // namespace
}  // namespace qwen_image::qwen_image_21
