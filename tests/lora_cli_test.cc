// --lora as a user types it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cli_harness.h"
#include "files/json.h"
#include "files/png.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const fs::path kLoras = fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/loras";

class LoraCli : public testing::Test {
 protected:
  RunResult Run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"generate"});
    return RunProgram(arguments, {.folder = folder_.path()});
  }
  // A small picture of two steps, unless said otherwise.
  RunResult Draw(const std::string& output, std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"a red circle", "--size", "64x64", "-o", output});
    return Run(arguments);
  }
  static std::string Lora(const std::string& name, const std::string& scale = "") {
    return (kLoras / (name + ".safetensors")).string() + (scale.empty() ? "" : ":" + scale);
  }
  std::vector<uint8_t> Pixels(const std::string& name) const { return ReadPng(folder_.path() / name).pixels; }
  std::string Copied(const std::string& name, const std::string& to) const {
    fs::copy(kLoras / (name + ".safetensors"), folder_.path() / to);
    return to;
  }

  TempFolder folder_;
};

TEST_F(LoraCli, TheSummarySaysWhatWasApplied) {
  const RunResult plain = Draw("plain.png", {"--steps", "2"});
  EXPECT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_THAT(plain.out, Not(HasSubstr("lora")));
  const RunResult two =
      Draw("two.png", {"--steps", "2", "--lora", Lora("kohya", "0.7"), "--lora", Lora("second", "-0.5")});
  EXPECT_EQ(two.exit_code, 0) << two.err;
  EXPECT_THAT(two.out, HasSubstr("  lora: kohya.safetensors × 0.7, 20 of 20 layers\n"
                                 "  lora: second.safetensors × -0.5, 3 of 3 layers\n"));
  EXPECT_NE(Pixels("two.png"), Pixels("plain.png"));
  EXPECT_EQ(Draw("off.png", {"--steps", "2", "--lora", Lora("kohya", "0")}).exit_code, 0);
  EXPECT_EQ(Pixels("off.png"), Pixels("plain.png"));
}

TEST_F(LoraCli, JsonSaysItToo) {
  const RunResult run = Draw("a.png", {"--steps", "1", "--json", "--lora", Lora("peft", "0.5")});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json lora = ParseJson(run.out, "--json").at("loras").at(0);
  EXPECT_EQ(lora.at("file"), "peft.safetensors");
  EXPECT_EQ(lora.at("scale"), 0.5);
  EXPECT_EQ(lora.at("layers"), 20);
  EXPECT_EQ(lora.at("total_layers"), 20);
  EXPECT_EQ(lora.at("max_rank"), 2);
}

TEST_F(LoraCli, ARecordedPictureAsksForItsLoras) {
  ASSERT_EQ(Draw("a.png", {"--steps", "2", "--lora", Lora("kohya", "0.7"), "--lora", Lora("second", "-0.5")})
                .exit_code,
            0);
  const RunResult without = Run({"--from", "a.png", "-o", "b.png"});
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_THAT(without.err,
              HasSubstr("drawn with a LoRA; say where it is with --lora kohya.safetensors:0.7 --lora "
                        "second.safetensors:-0.5"));
  const RunResult with = Run(
      {"--from", "a.png", "-o", "b.png", "--lora", Lora("kohya", "0.7"), "--lora", Lora("second", "-0.5")});
  EXPECT_EQ(with.exit_code, 0) << with.err;
  EXPECT_EQ(Pixels("a.png"), Pixels("b.png"));
}

TEST_F(LoraCli, LightningSetsStepsAndGuidance) {
  const std::string lora = Copied("lightning", "Qwen-Image-Lightning-8steps-V1.0.safetensors");
  const RunResult run = Draw("a.png", {"--lora", lora});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("64x64, 8 steps, cfg 1,"), HasSubstr("  Lightning LoRA: 8 steps, cfg 1\n")));
  EXPECT_THAT(run.err, Not(HasSubstr("note:")));
  const std::string four = Copied("lightning", "lightning_4step.safetensors");
  EXPECT_THAT(Draw("b.png", {"--lora", four}).out, HasSubstr("4 steps, cfg 1"));
  const RunResult other = Draw("c.png", {"--lora", lora + ":0"});
  EXPECT_THAT(other.out, AllOf(HasSubstr("20 steps, cfg 4"), Not(HasSubstr("Lightning LoRA"))));
}

TEST_F(LoraCli, WhatTheUserSaysWinsOverLightning) {
  const std::string lora = Copied("lightning", "Qwen-Image-Lightning-8steps-V1.0.safetensors");
  const RunResult run = Draw("a.png", {"--lora", lora, "--steps", "3", "--cfg", "2.5"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("3 steps, cfg 2.5"), HasSubstr("Lightning LoRA: made for 8 steps, cfg 1\n")));
  EXPECT_THAT(run.err, HasSubstr("note: a Lightning LoRA needs no guidance: cfg 2.5"));
  EXPECT_THAT(Draw("b.png", {"--lora", lora, "--steps", "3"}).out, HasSubstr("3 steps, cfg 1,"));
}

// The noise levels are Lightning's, also where the user chose the number of steps.
TEST_F(LoraCli, LightningHasItsOwnNoiseLevels) {
  const std::string lora = Copied("lightning", "Qwen-Image-Lightning-8steps.safetensors");
  ASSERT_EQ(Draw("a.png", {"--lora", lora, "--steps", "3", "--cfg", "1"}).exit_code, 0);
  ASSERT_EQ(Draw("b.png", {"--lora", Lora("lightning"), "--steps", "3", "--cfg", "1"}).exit_code, 0);
  EXPECT_NE(Pixels("a.png"), Pixels("b.png"));
  const ModelCopy model(folder_.path() / "distilled");
  model.Edit("scheduler/scheduler_config.json", "\"base_shift\": 0.5", "\"base_shift\": 1.0986122886681098");
  model.Edit("scheduler/scheduler_config.json", "\"max_shift\": 0.9", "\"max_shift\": 1.0986122886681098");
  model.Edit("scheduler/scheduler_config.json", "\"shift_terminal\": 0.02", "\"shift_terminal\": null");
  ASSERT_EQ(Draw("c.png", {"--model", "distilled", "--lora", Lora("lightning"), "--steps", "3", "--cfg", "1"})
                .exit_code,
            0);
  EXPECT_EQ(Pixels("a.png"), Pixels("c.png"));
}

TEST_F(LoraCli, WhatCannotBeAppliedIsRefused) {
  const auto refused = [&](const std::string& lora) {
    const RunResult run = Draw("x.png", {"--steps", "1", "--lora", lora});
    EXPECT_EQ(run.exit_code, 3) << lora;
    EXPECT_FALSE(fs::exists(folder_.path() / "x.png")) << lora;
    return run.err;
  };
  EXPECT_THAT(refused(Lora("refused_other_model")), HasSubstr("it is one of Flux"));
  EXPECT_THAT(refused(Lora("refused_lokr")), HasSubstr("this is LoKr"));
  EXPECT_THAT(refused(Lora("refused_dora", "0.5")), HasSubstr("this is DoRA"));
  EXPECT_THAT(refused(Lora("refused_half")), HasSubstr("has no up (B) matrix"));
  EXPECT_THAT(refused(Lora("refused_shape")), HasSubstr("a layer of 129 inputs"));
  EXPECT_THAT(refused("absent.safetensors:0.5"), HasSubstr("there is no absent.safetensors"));
  const fs::path tiny = fs::path(QWEN_IMAGE_SOURCE_DIR) / "models/tiny";
  EXPECT_THAT(refused((tiny / "transformer/diffusion_pytorch_model.safetensors").string()),
              HasSubstr("a LoRA is expected here, but this is the transformer of a Qwen-Image model"));
  EXPECT_THAT(refused(tiny.string()), HasSubstr("is a folder"));
}

TEST_F(LoraCli, ALoraIsNoModel) {
  const std::string tiny = (fs::path(QWEN_IMAGE_SOURCE_DIR) / "models/tiny").string();
  for (const std::vector<std::string>& model : {std::vector<std::string>{"--model", Lora("kohya")},
                                                {"--model", tiny, "--transformer", Lora("kohya")}}) {
    const RunResult run = Draw("x.png", model);
    EXPECT_EQ(run.exit_code, 3) << model[0];
    EXPECT_THAT(run.err, HasSubstr("a LoRA, which is added to a model")) << model[0];
  }
}

TEST_F(LoraCli, AScaleMustBeANumber) {
  const RunResult run = Draw("x.png", {"--lora", Lora("kohya") + ":much"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("\"much\" is not a scale"));
}

}  // namespace
}  // namespace qwen_image
