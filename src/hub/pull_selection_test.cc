#include "hub/pull_selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "files/testing.h"

namespace qwen_image::hub {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Names = std::vector<std::string>;

std::vector<RemoteFile> Files(const Names& names) {
  std::vector<RemoteFile> files;
  for (const std::string& name : names) files.push_back({.path = name, .size = 1'500'000'000});
  return files;
}

Names Select(const Names& names, const PullFilter& filter = {}) {
  Names chosen;
  for (const RemoteFile& file : SelectFiles(Files(names), filter, "owner/model")) chosen.push_back(file.path);
  return chosen;
}

std::string Refusal(const Names& names, const PullFilter& filter = {}) {
  return MessageOf(ErrorKind::kUsage, [&] { Select(names, filter); });
}

const Names kModel = {".gitattributes",
                      "README.md",
                      "model_index.json",
                      "scheduler/scheduler_config.json",
                      "teaser.png",
                      "text_encoder/model-00001-of-00002.safetensors",
                      "text_encoder/model-00002-of-00002.safetensors",
                      "tokenizer/merges.txt",
                      "tokenizer/vocab.json",
                      "transformer/config.json",
                      "transformer/diffusion_pytorch_model.bin",
                      "transformer/diffusion_pytorch_model.safetensors",
                      "unused/model.onnx"};

TEST(PullSelection, TakesWhatIsRead) {
  EXPECT_THAT(Select(kModel),
              ElementsAre("model_index.json", "scheduler/scheduler_config.json",
                          "text_encoder/model-00001-of-00002.safetensors",
                          "text_encoder/model-00002-of-00002.safetensors", "tokenizer/merges.txt",
                          "tokenizer/vocab.json", "transformer/config.json",
                          "transformer/diffusion_pytorch_model.safetensors"));
}

// Qwen-Image-2.1 has its tokenizer beside the processor of pictures.
TEST(PullSelection, TakesATokenizerInTheProcessorsFolder) {
  EXPECT_THAT(
      Select({"LICENSE", "model_index.json", "processor/added_tokens.json", "processor/chat_template.jinja",
              "processor/merges.txt", "processor/preprocessor_config.json", "processor/tokenizer.json",
              "text_encoder/model.safetensors", "transformer/config.json"}),
      ElementsAre("model_index.json", "processor/added_tokens.json", "processor/merges.txt",
                  "processor/preprocessor_config.json", "processor/tokenizer.json",
                  "text_encoder/model.safetensors", "transformer/config.json"));
}

TEST(PullSelection, OneFolder) {
  EXPECT_THAT(Select(kModel, {.only = {"transformer/"}}),
              ElementsAre("model_index.json", "transformer/config.json",
                          "transformer/diffusion_pytorch_model.safetensors"));
  EXPECT_THAT(Select(kModel, {.only = {"tokenizer", "scheduler"}}),
              ElementsAre("model_index.json", "scheduler/scheduler_config.json", "tokenizer/merges.txt",
                          "tokenizer/vocab.json"));
  EXPECT_THAT(Refusal(kModel, {.only = {"trans"}}), HasSubstr("no folder \"trans\""));
}

TEST(PullSelection, ByName) {
  EXPECT_THAT(Select(kModel, {.include = {"*.png", "README.md"}}), ElementsAre("README.md", "teaser.png"));
  EXPECT_THAT(Select(kModel, {.only = {"transformer"}, .include = {"*.json"}}),
              ElementsAre("transformer/config.json"));
  EXPECT_THAT(Refusal(kModel, {.include = {"*.json", "*Q4*"}}), HasSubstr("matches \"*Q4*\""));
}

TEST(PullSelection, AlternativesAreAChoice) {
  const Names quantizations = {"README.md", "qwen-image-Q4_K_M.gguf", "qwen-image-Q8_0.gguf"};
  EXPECT_THAT(Refusal(quantizations),
              AllOf(HasSubstr("2 files to choose from"), HasSubstr("qwen-image-Q8_0.gguf (1.5 GB)"),
                    HasSubstr("--include 'qwen-image-Q4_K_M.gguf'")));
  EXPECT_THAT(Select(quantizations, {.include = {"*Q8_0*"}}), ElementsAre("qwen-image-Q8_0.gguf"));
  EXPECT_THAT(Select({"one.gguf"}), ElementsAre("one.gguf"));
  EXPECT_THAT(Refusal({"loras/4steps.safetensors", "loras/8steps.safetensors"}), HasSubstr("4steps"));
}

TEST(PullSelection, ShardsAreNoAlternatives) {
  const Names mlx = {"transformer/0.safetensors", "transformer/1.safetensors"};
  EXPECT_EQ(Select(mlx), mlx);
  const Names indexed = {"t/a.safetensors", "t/b.safetensors", "t/model.safetensors.index.json"};
  EXPECT_EQ(Select(indexed), indexed);
  const Names split = {"q-00001-of-00002.gguf", "q-00002-of-00002.gguf"};
  EXPECT_EQ(Select(split), split);
}

TEST(PullSelection, NothingToRead) {
  EXPECT_THAT(Refusal({"README.md", "x.bin"}), HasSubstr("no file of a kind"));
}

}  // namespace
}  // namespace qwen_image::hub
