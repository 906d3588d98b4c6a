// Drawing with the files of other tools, as a user names them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cli_harness.h"
#include "files/png.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Arguments = std::vector<std::string>;

class FormatsCli : public testing::Test {
 protected:
  RunResult Generate(Arguments arguments) const {
    arguments.insert(arguments.begin(), {"generate", "a red circle", "--steps", "2", "--size", "64x64"});
    return RunProgram(arguments, {.folder = folder_.path()});
  }
  // A file of another tool with the config that its odd size needs beside it.
  std::string Part(const std::string& component, const std::string& file) const {
    const fs::path to = folder_.path() / (component + "-" + file);
    fs::create_directories(to);
    fs::copy_file(kFormats / "configs/wide32" / component / "config.json", to / "config.json",
                  fs::copy_options::overwrite_existing);
    fs::copy_file(kFormats / file, to / file, fs::copy_options::overwrite_existing);
    return to / file;
  }
  Image Draw(const std::string& transformer) const {
    const RunResult result = Generate({"--transformer", Part("transformer", transformer), "--text-encoder",
                                       Part("text_encoder", "text_encoder_q8_0.gguf"), "--vae",
                                       Part("vae", "comfy_vae.safetensors"), "-o", "out.png", "--cfg", "1"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return ReadPng(folder_.path() / "out.png");
  }
  const TempFolder folder_;
};

double Psnr(const Image& a, const Image& b) {
  double squares = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) squares += std::pow(a.pixels[i] - b.pixels[i], 2);
  return 10 * std::log10(255.0 * 255.0 * static_cast<double>(a.pixels.size()) / squares);
}

// The same random model by three tools, with a text encoder of llama.cpp's (and the tokenizer in it) and a
// VAE of ComfyUI's. What the values must be is tested beside the loader; here it is that they draw.
TEST_F(FormatsCli, PartsOfThreeToolsDrawOnePicture) {
  const Image q8_0 = Draw("transformer_q8_0.gguf");
  const double mlx_q8 = Psnr(q8_0, Draw("mlx_q8_g32.safetensors"));
  const double fp8 = Psnr(q8_0, Draw("comfy_fp8_scaled.safetensors"));
  const double q4_0 = Psnr(q8_0, Draw("transformer_q4_0.gguf"));
  EXPECT_GT(mlx_q8, fp8);  // 8 bits against 4 of fp8's mantissa …
  EXPECT_GT(fp8, q4_0);    // … against 4 bits
  EXPECT_GT(q4_0, 15);     // unrelated pictures have about 10
}

TEST_F(FormatsCli, APartReplacesThatOfTheModel) {
  const std::string transformer = kTinyFolder / "transformer/diffusion_pytorch_model.safetensors";
  EXPECT_EQ(Generate({"-o", "a.png"}).exit_code, 0);
  EXPECT_EQ(Generate({"--model", kTinyFolder, "--transformer", transformer, "-o", "b.png"}).exit_code, 0);
  EXPECT_EQ(ReadPng(folder_.path() / "a.png").pixels, ReadPng(folder_.path() / "b.png").pixels);
  EXPECT_EQ(Generate({"--transformer", transformer, "--text-encoder", kTinyFolder / "text_encoder", "--vae",
                      kTinyFolder / "vae", "-o", "c.png"})
                .exit_code,
            0);  // tokenizer and scheduler are found beside the text encoder
  EXPECT_EQ(ReadPng(folder_.path() / "a.png").pixels, ReadPng(folder_.path() / "c.png").pixels);
}

TEST_F(FormatsCli, AFolderOfComfyUi) {
  const auto copy = [&](const char* component, const char* folder, const char* file) {
    fs::create_directories(folder_.path() / "comfy" / folder);
    fs::copy_file(kFormats / "configs/wide32" / component / "config.json",
                  folder_.path() / "comfy" / folder / "config.json");
    fs::copy_file(kFormats / file, folder_.path() / "comfy" / folder / file);
  };
  copy("transformer", "diffusion_models", "comfy_fp8_scaled.safetensors");
  copy("text_encoder", "text_encoders", "text_encoder_q8_0.gguf");
  copy("vae", "vae", "comfy_vae.safetensors");
  const RunResult result = Generate({"--model", "comfy", "-o", "a.png"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  fs::copy_file(kFormats / "transformer_q4_0.gguf", folder_.path() / "comfy/diffusion_models/other.gguf");
  const RunResult two = Generate({"--model", "comfy", "-o", "b.png"});
  EXPECT_EQ(two.exit_code, kBadInput);
  EXPECT_THAT(two.err,
              AllOf(HasSubstr("several files; choose one as the transformer"), HasSubstr("other.gguf")));
}

TEST_F(FormatsCli, WhatIsMissingIsSaidByName) {
  const RunResult result = Generate({"--model", Part("transformer", "transformer_q8_0.gguf")});
  EXPECT_EQ(result.exit_code, kBadInput);
  EXPECT_THAT(result.err, AllOf(HasSubstr("missing: text_encoder, vae, tokenizer"),
                                HasSubstr("or the parts one by one")));
}

TEST_F(FormatsCli, AWrongFileIsNamedForWhatItIs) {
  const auto refuse = [&](const Arguments& arguments, const char* message) {
    Arguments all = {"--model", kTinyFolder, "-o", "a.png"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const RunResult result = Generate(all);
    EXPECT_EQ(result.exit_code, kBadInput);
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_FALSE(fs::exists(folder_.path() / "a.png"));
  };
  refuse({"--vae", kFormats / "transformer_q8_0.gguf"},
         "the vae is expected here, but this is the transformer");
  refuse({"--transformer", kFormats / "comfy_vae.safetensors"}, "but this is a VAE");
  refuse({"--text-encoder", kSource / "tests/goldens/loras/peft.safetensors"}, "but this is a LoRA");
  refuse({"--transformer", "absent.gguf"}, "there is no absent.gguf");
  refuse({"--transformer", Part("transformer", "transformer_q8_0.gguf")}, "they belong to different models");
  refuse({"--tokenizer", kTinyFolder / "vae"}, "no tokenizer here");
}

TEST_F(FormatsCli, OptionsAreChecked) {
  EXPECT_EQ(Generate({"--variant", "flux"}).exit_code, kUsage);
  EXPECT_EQ(Generate({"--precision", "sloppy"}).exit_code, kUsage);
  EXPECT_EQ(Generate({"--precision", "exact", "-o", "a.png"}).exit_code, 0);
  EXPECT_EQ(Generate({"--variant", "edit", "-o", "a.png"}).exit_code,
            kUsage);  // the embedded model says otherwise
  EXPECT_EQ(Generate({"--vae", ""}).exit_code, kUsage);
}

}  // namespace
}  // namespace qwen_image
