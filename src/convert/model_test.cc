#include "convert/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "convert/sources.h"
#include "convert/working_folder.h"
#include "core/fail.h"
#include "families/qwen_image/config_files.h"
#include "files/testing.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::convert {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const fs::path kSource = QWEN_IMAGE_SOURCE_DIR;
const fs::path kTiny = kSource / "models/tiny";
const fs::path kFormats = kSource / "tests/goldens/formats";

std::map<std::string, std::string> FilesIn(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file())
      files[entry.path().lexically_relative(folder).string()] = ReadBytes(entry.path());
  }
  return files;
}

class ConvertModelTest : public testing::Test {
 protected:
  fs::path Out(const std::string& name) const { return folder_.path() / name; }
  Result Convert(const ModelFiles& source, const std::string& name, const Options& options) {
    return ConvertModel(source, Out(name), options, cancel_);
  }
  // A file of another tool with the config that its odd size needs beside it.
  fs::path Part(const std::string& component, const std::string& file) const {
    const fs::path to = folder_.path() / (component + "-" + file);
    fs::create_directories(to);
    fs::copy_file(kFormats / "configs/wide32" / component / "config.json", to / "config.json");
    fs::copy_file(kFormats / file, to / file);
    return to / file;
  }
  const TempFolder folder_;
  CancelFlag cancel_;
};

const Options kSmallShards = {.to = {.bits = 4}, .max_shard_bytes = 300'000};

TEST_F(ConvertModelTest, AnInterruptedRunIsContinuedToTheSameBytes) {
  const Result whole = Convert(kTiny, "whole", kSmallShards);
  EXPECT_EQ(whole.continued, 0u);
  ASSERT_GT(whole.files, 8u);

  // Every run is stopped when it has read a little more than the one before.
  int64_t stop_at = 0;
  size_t runs = 0, continued = 0;
  for (bool done = false; !done; ++runs) {
    ASSERT_LT(runs, 30u);
    CancelFlag cancel;
    stop_at += 1'000'000;
    try {
      const Result result =
          ConvertModel(kTiny, Out("parts"), kSmallShards, cancel, [&](const Progress& progress) {
            if (progress.done_bytes >= stop_at) cancel.Cancel();
          });
      continued = result.continued;
      done = true;
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kInterrupted);
      EXPECT_FALSE(fs::exists(Out("parts")));
    }
  }
  EXPECT_GT(runs, 3u);
  EXPECT_GT(continued, 2u);
  EXPECT_EQ(FilesIn(Out("parts")), FilesIn(Out("whole")));
  EXPECT_FALSE(fs::exists(Out("parts.partial")));
}

TEST_F(ConvertModelTest, AChangedSourceIsNotMixedWithTheOldOne) {
  fs::copy(kTiny, Out("source"), fs::copy_options::recursive);
  CancelFlag cancel;
  EXPECT_THROW(ConvertModel(Out("source"), Out("out"), kSmallShards, cancel,
                            [&](const Progress& progress) {
                              if (progress.done_bytes > 2'000'000) cancel.Cancel();
                            }),
               Error);
  const fs::path weights = Out("source") / "vae/diffusion_pytorch_model.safetensors";
  fs::last_write_time(weights, fs::last_write_time(weights) + std::chrono::seconds(1));
  EXPECT_THAT(MessageOf(ErrorKind::kCannotWrite, [&] { Convert(Out("source"), "out", kSmallShards); }),
              HasSubstr("another source or with other options"));
  Options anew = kSmallShards;
  anew.overwrite = true;
  EXPECT_EQ(Convert(Out("source"), "out", anew).continued, 0u);
}

TEST_F(ConvertModelTest, TheFolderThatIsReadIsNotWritten) {
  fs::copy(kTiny, Out("source"), fs::copy_options::recursive);
  Options options{.to = {.dtype = DType::kF32}, .overwrite = true};
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { Convert(Out("source"), "source", options); }),
              HasSubstr("is in the folder to be written"));
  options.only = {Component::kVae};
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { Convert(Out("source"), "source/vae", options); }),
              HasSubstr("is in the folder to be written"));
  EXPECT_EQ(FilesIn(Out("source")), FilesIn(kTiny));
}

// Whatever the form, f32 holds exactly the values that are computed with.
TEST_F(ConvertModelTest, EveryFormBecomesItsValues) {
  struct Form {
    const char *component, *file;
  };
  for (const Form& form :
       {Form{"transformer", "mlx_q8_g32.safetensors"}, Form{"transformer", "transformer_q8_0.gguf"},
        Form{"transformer", "transformer_q4_0.gguf"}, Form{"transformer", "comfy_fp8_scaled.safetensors"},
        Form{"text_encoder", "text_encoder_q8_0.gguf"}, Form{"vae", "comfy_vae.safetensors"}}) {
    SCOPED_TRACE(form.file);
    const Component component = ParseComponent(form.component);
    ModelFiles source;
    (component == Component::kTransformer   ? source.transformer
     : component == Component::kTextEncoder ? source.text_encoder
                                            : source.vae) = Part(form.component, form.file);
    const std::string name = std::string(form.file) + ".f32";
    const Result result = Convert(source, name, {.to = {.dtype = DType::kF32}, .only = {component}});
    EXPECT_EQ(TotalOf(result.tensors).error.squared_error, 0);
    ModelParts from{
        .transformer = source.transformer, .text_encoder = source.text_encoder, .vae = source.vae};
    ModelParts to;
    to.transformer = to.text_encoder = to.vae = Out(name) / form.component;
    const auto before = FamilyFor(from).OpenPart(from, component),
               after = FamilyFor(to).OpenPart(to, component);
    ASSERT_EQ(after->store().tensors().size(), before->store().tensors().size());
    for (const auto& [tensor, unsettled] : before->store().tensors()) {
      const WeightTensor wanted = ReadableTensor(before->store(), tensor);
      const WeightTensor& found = after->store().tensors().at(tensor);
      EXPECT_EQ(found.Format(), "F32");
      EXPECT_EQ(found.shape(), wanted.shape()) << tensor;
      EXPECT_TRUE(found.Values() == wanted.Values()) << tensor;
    }
    EXPECT_THAT(FilesIn(Out(name)), testing::Contains(testing::Key("conversion.json")));
    EXPECT_FALSE(fs::exists(Out(name) / "model_index.json"));
  }
}

// Parts without configs, index, scheduler: what is written must be enough for the model to be opened.
TEST_F(ConvertModelTest, PartsOfSeveralToolsBecomeOneFolder) {
  ModelFiles source;
  source.transformer = Part("transformer", "comfy_fp8_scaled.safetensors");
  source.text_encoder = Part("text_encoder", "text_encoder_q8_0.gguf");
  source.vae = Part("vae", "comfy_vae.safetensors");
  const Options options{.to = {.bits = 8}, .group_size = 32};
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { Convert(source, "out", options); }),
              AllOf(HasSubstr("the tokenizer is inside this file"), HasSubstr("--tokenizer FOLDER")));
  source.tokenizer = kTiny / "tokenizer";
  Convert(source, "out", options);
  const ModelParts parts = FindModelParts(Out("out"));
  EXPECT_EQ(parts.pipeline_class, "QwenImagePipeline");
  EXPECT_NO_THROW(FamilyFor(parts).OpenPart(parts, Component::kTransformer));
  EXPECT_EQ(ReadSchedulerConfig(parts.scheduler).max_shift, OfficialScheduler().max_shift);
  const Json config = ReadJsonFile(Out("out") / "transformer/config.json");
  EXPECT_EQ(config.at("quantization").at("bits"), 8);
  EXPECT_EQ(config.at("quantization").at("group_size"), 32);
}

TEST_F(ConvertModelTest, ConfigsFollowTheWeights) {
  Convert(kTiny, "q4", {.to = {.bits = 4}});
  Convert(Out("q4"), "f16", {.to = {.dtype = DType::kF16}});
  const Json config = ReadJsonFile(Out("f16") / "transformer/config.json");
  EXPECT_EQ(config, ReadJsonFile(kTiny / "transformer/config.json"));  // no quantization
  Json text = ReadJsonFile(Out("f16") / "text_encoder/config.json");
  EXPECT_EQ(text.at("dtype"), "float16");
  text["dtype"] = "bfloat16";
  EXPECT_EQ(text, ReadJsonFile(kTiny / "text_encoder/config.json"));
  EXPECT_EQ(ReadBytes(Out("f16") / "tokenizer/tokenizer.json"),
            ReadBytes(kTiny / "tokenizer/tokenizer.json"));
  EXPECT_EQ(ReadBytes(Out("f16") / "qwen_image.json"), ReadBytes(kTiny / "qwen_image.json"));
  EXPECT_EQ(ReadBytes(Out("f16") / "model_index.json"), ReadBytes(kTiny / "model_index.json"));
}

// A family that keeps the tokenizer with the processor, and has a schedule of its own for a variant.
class ProcessorFamily final : public Family {
 public:
  const Vocabulary& vocabulary() const override { return base_.vocabulary(); }
  std::string title() const override { return base_.title(); }
  bool Recognises(const ModelParts&) const override { return true; }
  SchedulerConfig OfficialScheduler(const VariantInfo& variant) const override {
    return {.shift = variant.name == "quick" ? 7.0 : 3.0};
  }
  std::string_view tokenizer_folder() const override { return "processor"; }
  std::unique_ptr<Model> Open(const ModelParts& parts, const ModelFiles& files,
                              const ModelOptions& options) const override {
    return base_.Open(parts, files, options);
  }
  std::unique_ptr<ModelPart> OpenPart(const ModelParts& parts, Component component) const override {
    return base_.OpenPart(parts, component);
  }
  std::string ExamineTokenizer(const ModelParts& parts) const override {
    return base_.ExamineTokenizer(parts);
  }
  void CheckFit(const OpenedParts&, const fs::path&) const override {}
  VariantInfo ExamineVariant(const ModelParts&, const OpenedParts&, const std::string& asked,
                             const std::vector<std::string>&, std::vector<HealthFinding>*) const override {
    return {.name = asked, .given = !asked.empty()};
  }
  void ExamineVision(const ModelParts&, const OpenedParts&, bool,
                     std::vector<HealthFinding>&) const override {}
  Json ModelIndex(const VariantInfo& variant, bool) const override { return {{"variant", variant.name}}; }

 private:
  const Family& base_ = *Families().front();
};

TEST_F(ConvertModelTest, TheTokenizerGoesWhereItsFamilyHasIt) {
  const ProcessorFamily family;
  ModelParts parts = FindModelParts(kTiny);
  CopyOtherFiles(parts, family, {}, Out("folder"));
  EXPECT_EQ(ReadBytes(Out("folder") / "processor/tokenizer.json"),
            ReadBytes(kTiny / "tokenizer/tokenizer.json"));
  EXPECT_FALSE(fs::exists(Out("folder") / "tokenizer"));
  // One that is in the processor's folder already comes with all of it.
  fs::copy(kTiny, Out("model"), fs::copy_options::recursive);
  fs::create_directories(Out("model") / "processor");
  fs::rename(Out("model") / "tokenizer/tokenizer.json", Out("model") / "processor/tokenizer.json");
  fs::remove_all(Out("model") / "tokenizer");
  WriteJsonFile(Out("model") / "processor/preprocessor_config.json", {{"patch_size", 16}});
  parts = FindModelParts(Out("model"));
  CopyOtherFiles(parts, family, {}, Out("again"));
  EXPECT_THAT(FilesIn(Out("again") / "processor"), AllOf(Contains(testing::Key("tokenizer.json")),
                                                         Contains(testing::Key("preprocessor_config.json"))));
  EXPECT_FALSE(fs::exists(Out("again") / "tokenizer"));
}

// What the user says of the variant is what the new folder says of itself.
TEST_F(ConvertModelTest, AVariantThatWasGivenIsWrittenDown) {
  const ProcessorFamily family;
  const ModelParts parts = FindModelParts(kTiny);
  CopyOtherFiles(parts, family, {}, Out("told"));
  EXPECT_EQ(ReadBytes(Out("told") / "model_index.json"), ReadBytes(kTiny / "model_index.json"));
  EXPECT_EQ(ReadSchedulerConfig(Out("told") / "scheduler").shift, ReadSchedulerConfig(parts.scheduler).shift);
  CopyOtherFiles(parts, family, {.name = "quick", .given = true}, Out("given"));
  EXPECT_EQ(ReadJsonFile(Out("given") / "model_index.json"), Json({{"variant", "quick"}}));
  EXPECT_EQ(ReadSchedulerConfig(Out("given") / "scheduler").shift, 7);
}

// For a model whose config is missing one is written; it must describe the same model.
TEST_F(ConvertModelTest, MissingConfigsAreWritten) {
  const VaeConfig config = ReadVaeConfig(WeightStore(kTiny / "vae", Component::kVae));
  fs::create_directory(Out("vae"));
  fs::copy_file(kTiny / "vae/diffusion_pytorch_model.safetensors", Out("vae") / "model.safetensors");
  WriteJsonFile(Out("vae") / "config.json", VaeConfigJson(config));
  const VaeConfig again = ReadVaeConfig(WeightStore(Out("vae"), Component::kVae));
  EXPECT_EQ(again.base_dim, config.base_dim);
  EXPECT_EQ(again.dim_mult, config.dim_mult);
  EXPECT_EQ(again.latents_mean, config.latents_mean);
  EXPECT_EQ(again.latents_std, config.latents_std);
}

TEST_F(ConvertModelTest, ConvertingAgainChangesNothing) {
  Convert(kTiny, "q4", {.to = {.bits = 4}});
  const Result again = Convert(Out("q4"), "again", {.to = {.bits = 4}});
  EXPECT_EQ(TotalOf(again.tensors).error.squared_error, 0);
  for (const char* file :
       {"transformer/diffusion_pytorch_model.safetensors", "text_encoder/model.safetensors",
        "vae/diffusion_pytorch_model.safetensors", "transformer/config.json"}) {
    EXPECT_TRUE(ReadBytes(Out("q4") / file) == ReadBytes(Out("again") / file)) << file;
  }
}

TEST_F(ConvertModelTest, AVisionTowerInAFileOfItsOwnStaysThere) {
  ModelFiles source = kTiny;
  const Options options{.to = {.dtype = DType::kF32}, .only = {Component::kTextEncoder}};
  EXPECT_THAT(Convert(source, "with", options).notes, Not(Contains(HasSubstr("vision tower"))));
  source.vision_encoder = kTiny / "text_encoder/model.safetensors";
  EXPECT_THAT(Convert(source, "without", options).notes,
              Contains(AllOf(HasSubstr("the vision tower is a file of its own and is not converted"),
                             HasSubstr("--vision-encoder " + source.vision_encoder.string()))));
}

// A LoRA that is merged draws what it draws when it is applied at run time.
TEST_F(ConvertModelTest, LorasAreMerged) {
  ModelFiles source = kTiny;
  const fs::path loras = kSource / "tests/goldens/loras";
  source.loras = {{loras / "kohya.safetensors", 0.7}, {loras / "second.safetensors", -0.5}};
  const Result result = Convert(source, "merged", {.to = {.dtype = DType::kF32}});
  EXPECT_THAT(result.notes, Contains(HasSubstr("merged kohya.safetensors × 0.7: 20 of 20 layers")));
  GenerateRequest request;
  request.prompt = "a red circle";
  request.steps = 2;
  const auto draw = [&](const ModelFiles& model) {
    return Pipeline(model, {.threads = 2}).Generate(request).pixels;
  };
  const std::vector<uint8_t> applied = draw(source), merged = draw(Out("merged")), plain = draw(kTiny);
  int largest = 0, without = 0;
  for (size_t i = 0; i < applied.size(); ++i) {
    largest = std::max(largest, std::abs(applied[i] - merged[i]));
    without = std::max(without, std::abs(plain[i] - merged[i]));
  }
  EXPECT_LE(largest, 1);
  EXPECT_GT(without, 8);
}

TEST_F(ConvertModelTest, WhatALoraChangesIsNotCopied) {
  Convert(kTiny, "q4", {.to = {.bits = 4}});
  ModelFiles source = Out("q4");
  source.loras = {{kSource / "tests/goldens/loras/kohya.safetensors", 1.0}};
  Convert(source, "merged", {.to = {.bits = 4}});
  const char* file = "transformer/diffusion_pytorch_model.safetensors";
  EXPECT_FALSE(ReadBytes(Out("q4") / file) == ReadBytes(Out("merged") / file));
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { Convert(source, "vae", {.only = {Component::kVae}}); }),
              HasSubstr("--lora changes the transformer"));
}

}  // namespace
}  // namespace qwen_image::convert
