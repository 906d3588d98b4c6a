#include "weights/model_parts.h"

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
  return MessageOf(ErrorKind::kBadInput, [&] { FindModelParts(root); });
}

// A folder of this class with all components, which are empty.
void WriteModel(const TempFolder& folder, const std::string& class_name) {
  folder.Write("model_index.json", "{\"_class_name\": \"" + class_name + "\"}");
  for (const char* component : {"transformer", "text_encoder", "vae", "tokenizer", "scheduler"}) {
    fs::create_directory(folder.path() / component);
  }
}

TEST(ModelParts, OpensTheTinyModel) {
  for (const fs::path& root : {kTiny, kTiny / ""}) {
    const ModelParts folder = FindModelParts(root);
    EXPECT_EQ(folder.root, kTiny);
    EXPECT_EQ(folder.pipeline_class, "QwenImagePipeline");
    EXPECT_EQ(folder.transformer, kTiny / "transformer");
    EXPECT_EQ(folder.text_encoder, kTiny / "text_encoder");
    EXPECT_EQ(folder.vae, kTiny / "vae");
    EXPECT_EQ(folder.vision_encoder, kTiny / "text_encoder");
    EXPECT_EQ(folder.tokenizer, kTiny / "tokenizer");
    EXPECT_EQ(folder.scheduler, kTiny / "scheduler");
  }
}

TEST(ModelParts, AcceptsTheRelativesThatShareTheArchitecture) {
  for (const char* name : {"QwenImageImg2ImgPipeline", "QwenImageInpaintPipeline", "QwenImageEditPipeline",
                           "QwenImageEditPlusPipeline", "QwenImageEditInpaintPipeline"}) {
    const TempFolder folder;
    WriteModel(folder, name);
    EXPECT_EQ(FindModelParts(folder.path()).pipeline_class, name);
  }
}

TEST(ModelParts, RefusesOtherModelsByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"QwenImageLayeredPipeline", "QwenImageLayeredPipeline model; Layered is not supported yet"},
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

// Qwen-Image-2.1 has no folder of its own for it.
TEST(ModelParts, ATokenizerMayBeWithTheProcessor) {
  const TempFolder folder;
  WriteModel(folder, "QwenImagePipeline");
  folder.Write("processor/preprocessor_config.json", "{}");
  EXPECT_EQ(FindModelParts({folder.path()}).tokenizer, folder.path() / "tokenizer");
  fs::remove(folder.path() / "tokenizer");
  EXPECT_THAT(MessageFor(folder.path()), HasSubstr("missing: tokenizer."));
  folder.Write("processor/tokenizer.json", "{}");
  EXPECT_EQ(FindModelParts({folder.path()}).tokenizer, folder.path() / "processor");
  ModelFiles files;
  files.text_encoder = folder.path() / "text_encoder";
  EXPECT_EQ(LocateModelParts(files).tokenizer, folder.path() / "processor");
}

TEST(ModelParts, ATokenizerMayLieBesideComfyUisFolders) {
  const TempFolder folder;
  for (const char* name :
       {"diffusion_models/t.safetensors", "text_encoders/e.safetensors", "vae/v.safetensors"})
    folder.Write(name, "");
  EXPECT_THAT(MessageFor(folder.path()), HasSubstr("missing: tokenizer."));
  folder.Write("processor/tokenizer.json", "{}");
  const ModelParts parts = FindModelParts({folder.path()});
  EXPECT_EQ(parts.tokenizer, folder.path() / "processor");
  EXPECT_EQ(parts.transformer, folder.path() / "diffusion_models/t.safetensors");
}

TEST(ModelParts, ListsAllMissingComponents) {
  const TempFolder folder;
  WriteModel(folder, "QwenImagePipeline");
  fs::remove(folder.path() / "vae");
  fs::remove(folder.path() / "tokenizer");
  folder.Write("tokenizer", "a file is not a folder");
  EXPECT_THAT(MessageFor(folder.path()),
              AllOf(HasSubstr("missing: vae, tokenizer."), HasSubstr("incomplete")));
}

TEST(ModelParts, SaysWhatAWrongPathIs) {
  const TempFolder folder;
  EXPECT_THAT(MessageFor(folder.path() / "absent"), AllOf(HasSubstr("absent"), HasSubstr("spelling")));
  EXPECT_THAT(MessageFor(""), HasSubstr("no model was named"));
  EXPECT_THAT(MessageFor(folder.Write("model.safetensors", "")), HasSubstr("has 0 bytes"));
  EXPECT_THAT(MessageFor(kTiny / "transformer/"),
              AllOf(HasSubstr("one component"), HasSubstr("give the folder above it: " + kTiny.string())));
  EXPECT_THAT(MessageFor(folder.path()), HasSubstr("is not a model folder"));
  folder.Write("inner/model_index.json", "{}");
  EXPECT_THAT(MessageFor(folder.path()), HasSubstr("give " + (folder.path() / "inner").string()));
}

TEST(ModelParts, RefusesABrokenIndex) {
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

}  // namespace
}  // namespace qwen_image
