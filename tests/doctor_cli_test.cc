// qwen-image doctor as its users meet it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli_harness.h"
#include "files/json.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Arguments = std::vector<std::string>;
constexpr int kUsable = 0, kNotUsable = 1;

class DoctorCli : public testing::Test {
 protected:
  RunResult Doctor(const Arguments& arguments) const {
    Arguments all = {"doctor"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return RunProgram(all, {.folder = folder_.path()});
  }
  Json Describe(Arguments arguments, int exit_code) const {
    arguments.push_back("--json");
    const RunResult result = Doctor(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << result.out << result.err;
    return Json::parse(result.out);
  }
  // "warning variant: …", all of them.
  static std::string Findings(const Json& diagnosis) {
    std::string text;
    for (const Json& finding : diagnosis["findings"]) {
      text += finding["health"].get<std::string>() + " " + finding["subject"].get<std::string>() + ": " +
              finding["text"].get<std::string>() + "\n";
    }
    return text;
  }
  const TempFolder folder_;
};

TEST_F(DoctorCli, TheEmbeddedModelIsUsable) {
  const RunResult result = Doctor({kTiny});
  EXPECT_EQ(result.exit_code, kUsable) << result.err;
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("variant qwen-image"), HasSubstr("model_index.json: QwenImagePipeline"),
            HasSubstr("4 blocks, 4 heads of 32"), HasSubstr("850 tokens"), HasSubstr("vision tower: there"),
            HasSubstr("128x128"), HasSubstr("fits"), HasSubstr("\nusable\n"), Not(HasSubstr("\x1b"))));
  const Json json = Describe({kTiny}, kUsable);
  EXPECT_EQ(json["variant"], "qwen-image");
  EXPECT_EQ(json["parts"][0]["formats"], Json({{"BF16", json["parts"][0]["bytes"]}}));
  EXPECT_GT(json["pictures"][0]["seconds_per_step"].get<double>(), 0);
  EXPECT_TRUE(json["pictures"][0]["fits"].get<bool>());
  EXPECT_EQ(Doctor({}).exit_code, kUsable);  // without a path it is the embedded model
}

TEST_F(DoctorCli, SaysWhatIsMissingAndItsUsualName) {
  const ModelCopy model(folder_.path() / "model");
  fs::remove_all(model.path() / "vae");
  fs::remove_all(model.path() / "tokenizer");
  const Json json = Describe({model.path()}, kNotUsable);
  EXPECT_THAT(
      Findings(json),
      AllOf(HasSubstr(
                "broken vae: is missing; it is usually vae/diffusion_pytorch_model.safetensors, or name it "
                "with --vae"),
            HasSubstr("broken tokenizer: is missing; it is usually tokenizer/tokenizer.json")));
  EXPECT_THAT(Doctor({model.path()}).out, HasSubstr("not usable as it is\n"));
  // The other parts are still looked at.
  EXPECT_THAT(Doctor({model.path()}).out, HasSubstr("4 blocks, 4 heads of 32"));
  EXPECT_EQ(Doctor({model.path(), "--vae", kTiny + "/vae", "--tokenizer", kTiny + "/tokenizer"}).exit_code,
            kUsable);
}

TEST_F(DoctorCli, SaysWhatIsWrongWithEachPart) {
  const ModelCopy model(folder_.path() / "model");
  model.EditTensors("transformer/diffusion_pytorch_model.safetensors",
                    [](ModelCopy::StoredTensors& tensors) { tensors.erase("img_in.bias"); });
  model.Write("tokenizer/tokenizer.json", "{");
  const Json json = Describe({model.path()}, kNotUsable);
  EXPECT_THAT(Findings(json), AllOf(HasSubstr("img_in.bias is missing, expected with shape [128]"),
                                    HasSubstr("broken tokenizer: "), HasSubstr("not valid JSON")));
}

TEST_F(DoctorCli, WhatAModelSaysIsNotObeyedByATerminal) {
  const std::string evil = R"(\u001b[31m\u202e\u009b)";
  const std::tuple<const char*, const char*, std::string> plants[] = {
      {"text_encoder/config.json", R"("hidden_act": "silu",)", R"("hidden_act": ")" + evil + "\","},
      {"text_encoder/config.json", R"("rope_type": "default")", R"("rope_type": ")" + evil + "\""},
      {"text_encoder/config.json", R"("vocab_size": 1024)", R"("vocab_size": ")" + evil + "\""},
      {"scheduler/scheduler_config.json", R"("FlowMatchEulerDiscreteScheduler")", '"' + evil + '"'},
      {"scheduler/scheduler_config.json", R"("time_shift_type": "exponential")",
       R"("time_shift_type": ")" + evil + '"'},
      {"transformer/config.json", R"("num_layers": 4)", R"("num_layers": ")" + evil + '"'}};
  for (const auto& [file, from, to] : plants) {
    SCOPED_TRACE(to);
    const ModelCopy model(folder_.path() / "model");
    model.Edit(file, from, to);
    const RunResult doctor = Doctor({model.path()});
    EXPECT_EQ(doctor.exit_code, kNotUsable);
    const RunResult draws =
        RunProgram({"generate", "x", "--model", model.path()}, {.folder = folder_.path()});
    EXPECT_EQ(draws.exit_code, kBadInput);
    for (const std::string& said : {doctor.out, draws.err}) {
      EXPECT_THAT(said, HasSubstr("31m"));
      for (const char* obeyed : {"\x1b", "\u202e", "\u009b"}) EXPECT_THAT(said, Not(HasSubstr(obeyed)));
    }
    fs::remove_all(model.path());
  }
}

TEST_F(DoctorCli, RefusesNumbersThatNoNormHas) {
  for (const auto& [from, to] : {std::pair(R"("rms_norm_eps": 1e-06)", R"("rms_norm_eps": -1)"),
                                 std::pair(R"("rope_theta": 1000000.0)", R"("rope_theta": 0)"),
                                 std::pair(R"("rope_theta": 1000000.0)", R"("rope_theta": 1e-60)")}) {
    const ModelCopy model(folder_.path() / "model");
    model.Edit("text_encoder/config.json", from, to);
    EXPECT_THAT(Findings(Describe({model.path()}, kNotUsable)), HasSubstr("expected a number above 0")) << to;
    fs::remove_all(model.path());
  }
}

TEST_F(DoctorCli, TellsVariants) {
  const ModelCopy model(folder_.path() / "model");
  model.Edit("model_index.json", "QwenImagePipeline", "QwenImageEditPlusPipeline");
  EXPECT_EQ(Describe({model.path()}, kUsable)["variant"], "edit-2509");
  const Json lost = Describe({model.path(), "--variant", "edit-2511"}, kUsable);
  EXPECT_EQ(lost["variant"], "edit-2511");
  EXPECT_THAT(Findings(lost), HasSubstr("warning variant: Edit-2511 without its marker"));
  model.Edit("transformer/config.json", "\"zero_cond_t\": false", "\"zero_cond_t\": true");
  const Json marked = Describe({model.path()}, kUsable);
  EXPECT_EQ(marked["variant"], "edit-2511");
  EXPECT_THAT(Findings(marked), Not(HasSubstr("without its marker")));
  EXPECT_THAT(Findings(Describe({model.path(), "--variant", "edit"}, kNotUsable)),
              AllOf(HasSubstr("contradicts"), Not(HasSubstr("cannot tell"))));
}

TEST_F(DoctorCli, CannotTellTheVariantOfASingleFile) {
  const Json json = Describe(
      {"--model", kTiny, "--transformer", kTiny + "/transformer/diffusion_pytorch_model.safetensors"},
      kUsable);
  EXPECT_EQ(json["variant"], nullptr);
  EXPECT_THAT(Findings(json), HasSubstr("note variant: cannot tell"));
}

TEST_F(DoctorCli, KnowsAFileForWhatItIs) {
  const Json transformer = Describe({kFormats / "transformer_q8_0.gguf"}, kNotUsable);
  EXPECT_THAT(Findings(transformer),
              AllOf(HasSubstr("text_encoder: is missing"), HasSubstr("vae: is missing")));
  EXPECT_THAT(Findings(Describe({kSource / "tests/goldens/loras/peft.safetensors"}, kNotUsable)),
              HasSubstr("a LoRA, which is added to a model"));
  EXPECT_THAT(Findings(Describe({"absent"}, kNotUsable)), HasSubstr("there is no model absent"));
  const Json not_pulled = Describe({"owner/name"}, kNotUsable);
  EXPECT_THAT(Findings(not_pulled), HasSubstr("qwen-image pull owner/name"));
}

TEST_F(DoctorCli, WarnsOfPlainFp8UnderALightningSchedule) {
  const ModelCopy model(folder_.path() / "model");
  model.EditTensors("transformer/diffusion_pytorch_model.safetensors", [](ModelCopy::StoredTensors& tensors) {
    ModelCopy::StoredTensor& weight = tensors["transformer_blocks.0.attn.to_q.weight"];
    weight.dtype = "F8_E4M3";
    weight.bytes.resize(weight.bytes.size() / 2, '\x30');
  });
  EXPECT_THAT(Findings(Describe({model.path()}, kUsable)), HasSubstr("note transformer: fp8 without scales"));
  model.Write("scheduler/scheduler_config.json",
              R"({"use_dynamic_shifting": true, "base_shift": 1.0986, "max_shift": 1.0986})");
  EXPECT_THAT(Findings(Describe({model.path()}, kUsable)),
              AllOf(HasSubstr("warning transformer: fp8 without scales under a Lightning schedule"),
                    HasSubstr("note guidance: a distilled schedule")));
}

TEST_F(DoctorCli, TellsWhatALoraChanges) {
  const fs::path loras = kSource / "tests/goldens/loras";
  fs::copy_file(loras / "lightning.safetensors", folder_.path() / "Lightning-4steps.safetensors");
  const Json json = Describe(
      {kTiny, "--lora", (loras / "peft.safetensors:0.5").string(), "--lora", "Lightning-4steps.safetensors"},
      kUsable);
  EXPECT_THAT(Findings(json), AllOf(HasSubstr("good lora: peft.safetensors × 0.5: 20 of 20 layers, rank 2\n"),
                                    HasSubstr("a distilled schedule (Lightning): 4 steps and cfg 1")));
  EXPECT_THAT(Findings(Describe({kTiny, "--lora", loras / "refused_shape.safetensors"}, kNotUsable)),
              HasSubstr("broken lora: "));
}

TEST_F(DoctorCli, CountsTheParametersOfPackedTensors) {
  ASSERT_EQ(
      RunProgram({"convert", kTiny, "-o", "q4", "--to", "q4", "-q"}, {.folder = folder_.path()}).exit_code,
      0);
  const Json plain = Describe({kTiny}, kUsable), packed = Describe({"q4"}, kUsable);
  for (size_t part = 0; part < 3; ++part) {
    EXPECT_EQ(packed["parts"][part]["parameters"], plain["parts"][part]["parameters"]);
    EXPECT_FALSE(packed["parts"][part]["formats"].contains("packed"));
  }
}

TEST_F(DoctorCli, PartsOfDifferentModelsAreNotUsable) {
  const fs::path part = folder_.path() / "text_encoder";
  fs::create_directories(part);
  fs::copy_file(kFormats / "configs/wide32/text_encoder/config.json", part / "config.json");
  fs::copy_file(kFormats / "text_encoder_q8_0.gguf", part / "text_encoder.gguf");
  EXPECT_THAT(Findings(Describe({kTiny, "--text-encoder", part / "text_encoder.gguf"}, kNotUsable)),
              HasSubstr("they belong to different models"));
}

TEST_F(DoctorCli, WrongUsage) {
  EXPECT_EQ(Doctor({kTiny, "--model", kTiny}).exit_code, kUsage);
  EXPECT_EQ(Doctor({kTiny, "--variant", "flux"}).exit_code, kUsage);
  EXPECT_EQ(Doctor({kTiny, "--frobnicate"}).exit_code, kUsage);
}

// What is true of Qwen-Image-2.1 and not of the older models.
TEST_F(DoctorCli, KnowsTheNewerFamily) {
  const fs::path model = kSource / "tests/goldens/models/21-micro";
  const Json diagnosis = Describe({model.string()}, kUsable);
  EXPECT_EQ(diagnosis["what"], "Qwen-Image-2.1, variant 2.1");
  EXPECT_THAT(Findings(diagnosis), AllOf(HasSubstr("all of a prompt is used, up to 8192 positions"),
                                         HasSubstr("not for commercial"), HasSubstr("vision tower: there"),
                                         Not(HasSubstr("512 tokens"))));
  // The same tensors, and no index that speaks for them.
  const std::string transformer = (model / "transformer/diffusion_pytorch_model.safetensors").string();
  EXPECT_THAT(Findings(Describe({model.string(), "--transformer", transformer}, kUsable)),
              HasSubstr("cannot tell the base model from Turbo"));

  fs::copy(model, folder_.path() / "model", fs::copy_options::recursive);
  fs::remove_all(folder_.path() / "model/processor");
  EXPECT_THAT(Findings(Describe({(folder_.path() / "model").string()}, kNotUsable)),
              HasSubstr("broken tokenizer: is missing; it is usually processor/tokenizer.json"));
}

}  // namespace
}  // namespace qwen_image
