#include "weights/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "files/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const fs::path kTiny = fs::path(QWEN_IMAGE_SOURCE_DIR) / "models/tiny";

std::string MessageFor(const fs::path& root) {
  return MessageOf(ErrorKind::kBadInput, [&] { OpenModelFolder(root); });
}

// A folder of this class with all components, which are empty.
void WriteModel(const TempFolder& folder, const std::string& class_name) {
  folder.Write("model_index.json", "{\"_class_name\": \"" + class_name + "\"}");
  for (const char* component : {"transformer", "text_encoder", "vae", "tokenizer", "scheduler"}) {
    fs::create_directory(folder.path() / component);
  }
}

TEST(ModelFolder, OpensTheTinyModel) {
  for (const fs::path& root : {kTiny, kTiny / ""}) {
    const ModelFolder folder = OpenModelFolder(root);
    EXPECT_EQ(folder.root, kTiny);
    EXPECT_EQ(folder.pipeline_class, "QwenImagePipeline");
    EXPECT_EQ(folder.model_index.at("_class_name"), "QwenImagePipeline");
    EXPECT_EQ(folder.transformer, kTiny / "transformer");
    EXPECT_EQ(folder.text_encoder, kTiny / "text_encoder");
    EXPECT_EQ(folder.vae, kTiny / "vae");
    EXPECT_EQ(folder.tokenizer, kTiny / "tokenizer");
    EXPECT_EQ(folder.scheduler, kTiny / "scheduler");
  }
}

TEST(ModelFolder, AcceptsTheRelativesThatShareTheArchitecture) {
  for (const char* name : {"QwenImageImg2ImgPipeline", "QwenImageInpaintPipeline", "QwenImageEditPipeline",
                           "QwenImageEditPlusPipeline", "QwenImageEditInpaintPipeline"}) {
    const TempFolder folder;
    WriteModel(folder, name);
    EXPECT_EQ(OpenModelFolder(folder.path()).pipeline_class, name);
  }
}

TEST(ModelFolder, RefusesOtherModelsByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"QwenImageLayeredPipeline", "QwenImageLayeredPipeline model; Layered is not supported yet"},
      {"QwenImage21Pipeline", "Qwen-Image-2.1 is not supported yet"},
      {"QwenImageControlNetPipeline", "ControlNet is not supported yet"},
      {"QwenImageNewPipeline", "this kind is not supported yet"},
      {"FluxPipeline", "this is a FluxPipeline model; qwen-image runs Qwen-Image models"},
      {"StableDiffusion3Pipeline",
       "this is a StableDiffusion3Pipeline model; qwen-image runs Qwen-Image models"},
      {"ZImagePipeline", "this is a ZImagePipeline model; qwen-image runs Qwen-Image models"}};
  for (const auto& [name, message] : cases) {
    const TempFolder folder;
    WriteModel(folder, name);
    EXPECT_THAT(MessageFor(folder.path()), HasSubstr(message));
  }
}

TEST(ModelFolder, ListsAllMissingComponents) {
  const TempFolder folder;
  WriteModel(folder, "QwenImagePipeline");
  fs::remove(folder.path() / "vae");
  fs::remove(folder.path() / "tokenizer");
  folder.Write("tokenizer", "a file is not a folder");
  EXPECT_THAT(MessageFor(folder.path()),
              AllOf(HasSubstr("missing: vae, tokenizer."), HasSubstr("incomplete")));
}

TEST(ModelFolder, SaysWhatAWrongPathIs) {
  const TempFolder folder;
  EXPECT_THAT(MessageFor(folder.path() / "absent"), AllOf(HasSubstr("absent"), HasSubstr("spelling")));
  EXPECT_THAT(MessageFor("Qwen/Qwen-Image"), HasSubstr("Hugging Face"));
  EXPECT_THAT(MessageFor(""), HasSubstr("no model folder"));
  EXPECT_THAT(MessageFor(folder.Write("model.safetensors", "")), HasSubstr("is a single file"));
  EXPECT_THAT(MessageFor(kTiny / "transformer/"),
              AllOf(HasSubstr("one component"), HasSubstr("give the folder above it: " + kTiny.string())));
  EXPECT_THAT(MessageFor(folder.path()), HasSubstr("is not a model folder"));
  folder.Write("inner/model_index.json", "{}");
  EXPECT_THAT(MessageFor(folder.path()), HasSubstr("give " + (folder.path() / "inner").string()));
}

TEST(ModelFolder, RefusesABrokenIndex) {
  const TempFolder folder;
  WriteModel(folder, "QwenImagePipeline");
  for (const char* text : {"[]", "{}", "{\"_class_name\": 3}", "null"}) {
    folder.Write("model_index.json", text);
    EXPECT_THAT(MessageFor(folder.path()), HasSubstr("model_index.json: no \"_class_name\"")) << text;
  }
  folder.Write("model_index.json", "{");
  EXPECT_THAT(MessageFor(folder.path()), HasSubstr("not valid JSON"));
  folder.Write("model_index.json", R"({"_class_name": "A\u001b[31m\nB"})");
  EXPECT_THAT(MessageFor(folder.path()), AllOf(HasSubstr("A\\x1b[31m\\x0aB"), Not(HasSubstr("\n"))));
}

TEST(ModelDefaults, AreThoseOfTheTinyModel) {
  const ModelDefaults defaults = ReadModelDefaults(kTiny);
  EXPECT_EQ(defaults.name, "tiny");
  EXPECT_EQ(defaults.width, 128);
  EXPECT_EQ(defaults.height, 128);
  EXPECT_EQ(defaults.steps, 20);
  EXPECT_EQ(defaults.cfg, 4.0);
  EXPECT_EQ(defaults.negative_prompt, " ");
}

TEST(ModelDefaults, AreOptional) {
  const TempFolder folder;
  EXPECT_FALSE(ReadModelDefaults(folder.path()).steps);
  folder.Write("qwen_image.json", R"({"steps": 8, "cfg": 1})");
  const ModelDefaults defaults = ReadModelDefaults(folder.path());
  EXPECT_EQ(defaults.steps, 8);
  EXPECT_EQ(defaults.cfg, 1.0);
  EXPECT_FALSE(defaults.name || defaults.width || defaults.height || defaults.negative_prompt);
}

TEST(ModelDefaults, AreCheckedStrictly) {
  const TempFolder folder;
  const std::pair<const char*, const char*> cases[] = {
      {R"({"steps": 0})", "\"steps\" is 0, expected a whole number from 1"},
      {R"({"steps": -1})", "\"steps\" is -1"},
      {R"({"steps": 20.0})", "\"steps\" is 20.0"},
      {R"({"steps": "20"})", "\"steps\" is \"20\""},
      {R"({"steps": 18446744073709551615})", "\"steps\""},
      {R"({"steps": null})", "\"steps\" is null"},
      {R"({"width": 100})", "multiple of 16"},
      {R"({"height": 1000000})", "\"height\""},
      {R"({"cfg": -1})", "\"cfg\" is -1, expected a number from 0 to 100"},
      {R"({"cfg": "4"})", "\"cfg\""},
      {R"({"name": 3})", "\"name\" is 3, expected a string"},
      {R"({"negative_prompt": [1, 2]})", "\"negative_prompt\" is array"},
      {R"({"stesp": 3})", "unknown key \"stesp\""},
      {"[]", "a JSON object is expected"},
      {"{", "not valid JSON"}};
  for (const auto& [text, message] : cases) {
    folder.Write("qwen_image.json", text);
    EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { ReadModelDefaults(folder.path()); }),
                AllOf(HasSubstr("qwen_image.json"), HasSubstr(message)))
        << text;
  }
}

TEST(ModelDefaults, ALinkToNowhereIsAnError) {
  const TempFolder folder;
  fs::create_symlink("absent", folder.path() / "qwen_image.json");
  EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { ReadModelDefaults(folder.path()); }),
              HasSubstr("cannot open"));
}

}  // namespace
}  // namespace qwen_image
