#include "weights/recognize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/fail.h"
#include "families/qwen_image/vocabulary.h"
#include "files/testing.h"
#include "weights/model_parts.h"
#include "weights/store.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file with empty tensors of these names.
std::string FileWith(const std::vector<std::string>& names) {
  std::string header;
  for (const std::string& name : names) {
    header += fmt::format(R"({}"{}":{{"dtype":"BF16","shape":[0],"data_offsets":[0,0]}})",
                          header.empty() ? "" : ",", name);
  }
  return SafetensorsBytes("{" + header + "}", "");
}

TEST(Recognize, PartsOfTheFamilyInEveryNaming) {
  const TempFolder folder;
  const std::pair<const char*, Component> cases[] = {
      {"txt_norm.weight", Component::kTransformer},
      {"model.diffusion_model.txt_norm.weight", Component::kTransformer},
      {"model.embed_tokens.weight", Component::kTextEncoder},
      {"model.language_model.embed_tokens.weight", Component::kTextEncoder},
      {"encoder.embed_tokens.weight", Component::kTextEncoder},
      {"token_embd.weight", Component::kTextEncoder},
      {"decoder.conv_in.weight", Component::kVae},
      {"decoder.conv1.weight", Component::kVae},
      {"decoder.conv_in.conv3d.weight", Component::kVae},
      {"first_stage_model.decoder.conv1.weight", Component::kVae},
  };
  for (const auto& [name, component] : cases) {
    EXPECT_THAT(RecognizeFile(folder.Write("f", FileWith({name}))).components, ElementsAre(component))
        << name;
  }
  const auto checkpoint = RecognizeFile(
      folder.Write("f", FileWith({"model.diffusion_model.txt_norm.weight", "vae.decoder.conv1.weight",
                                  "text_encoders.qwen25_7b.transformer.model.embed_tokens.weight"})));
  EXPECT_THAT(checkpoint.components,
              ElementsAre(Component::kTransformer, Component::kTextEncoder, Component::kVae));
}

TEST(Recognize, OtherModelsAreNamed) {
  const TempFolder folder;
  // Beginnings of each model's state dict, in diffusers' names and where they are common in the original
  // ones.
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"time_text_embed.addition_t_embedding.weight", "txt_norm.weight"}, "Qwen-Image-Layered"},
      {{"control_img_in.weight", "control_blocks.0.attn.to_q.weight"}, "a ControlNet"},
      {{"context_embedder.weight", "single_transformer_blocks.0.attn.to_q.weight"},
       "Flux or one of its kind"},
      {{"model.diffusion_model.double_blocks.0.img_attn.qkv.weight"}, "Flux or one of its kind"},
      {{"context_embedder.weight", "double_stream_modulation_img.linear.weight",
        "single_transformer_blocks.0.attn.to_q.weight"},
       "Flux 2"},
      {{"context_embedder.weight", "pos_embed.proj.weight"}, "Stable Diffusion 3"},
      {{"joint_blocks.0.x_block.attn.qkv.weight"}, "Stable Diffusion 3"},
      {{"all_x_embedder.2-1.weight", "noise_refiner.0.attention.to_q.weight"}, "Z-Image"},
      {{"condition_embedder.time_embedder.linear_1.weight", "blocks.0.attn1.to_q.weight"}, "Wan"},
      {{"model.diffusion_model.input_blocks.0.0.weight"}, "Stable Diffusion 1, 2 or XL"},
  };
  for (const auto& [names, model] : cases) {
    const fs::path file = folder.Write("f.safetensors", FileWith(names));
    EXPECT_EQ(RecognizeFile(file).other_model, model);
    EXPECT_THAT(MessageOf(ErrorKind::kBadInput, [&] { WeightStore(file, Component::kTransformer); }),
                AllOf(HasSubstr("f.safetensors"), HasSubstr(model), HasSubstr("not supported")));
  }
}

TEST(Recognize, APartInThePlaceOfAnotherIsNamed) {
  const TempFolder folder;
  const auto message = [&](const char* tensor, Component component) {
    const fs::path file = folder.Write("f.safetensors", FileWith({tensor}));
    return MessageOf(ErrorKind::kBadInput, [&] { WeightStore(file, component); });
  };
  EXPECT_THAT(message("decoder.conv1.weight", Component::kTransformer),
              HasSubstr("the transformer is expected here, but this is a VAE"));
  EXPECT_THAT(message("txt_norm.weight", Component::kVae), HasSubstr("but this is the transformer"));
  EXPECT_THAT(message("transformer_blocks.0.attn.to_q.lora_A.weight", Component::kTransformer),
              HasSubstr("this is a LoRA, which is added to a model"));
  EXPECT_THAT(message("lora_unet_transformer_blocks_0_attn_to_q.lora_down.weight", Component::kTransformer),
              HasSubstr("this is a LoRA"));
}

TEST(Recognize, OtherTextEncodersAreNamed) {
  const TempFolder folder;
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"shared.weight", "encoder.block.0.layer.0.SelfAttention.q.weight"}, "T5"},
      {{"text_model.embeddings.token_embedding.weight"}, "CLIP"},
      {{"something.else"}, "nothing that is known"},
  };
  for (const auto& [names, what] : cases) {
    const fs::path file = folder.Write("f.safetensors", FileWith(names));
    ModelFiles files = fs::path(QWEN_IMAGE_SOURCE_DIR) / "models/tiny";
    files.text_encoder = file;
    EXPECT_THAT(MessageOf(ErrorKind::kBadInput,
                          [&] {
                            LocateModelParts(files);  // says it of files that it knows nothing of
                            WeightStore(file, Component::kTextEncoder);
                          }),
                AllOf(HasSubstr("the text_encoder is expected here"), HasSubstr(what)));
  }
}

TEST(Recognize, ConfigsOfOtherModelsAreRefused) {
  const TempFolder folder;
  folder.Write("model.safetensors", FileWith({"x"}));
  const auto message = [&](const char* config, Component component) {
    folder.Write("config.json", config);
    return MessageOf(ErrorKind::kBadInput, [&] { WeightStore(folder.path(), component); });
  };
  EXPECT_THAT(message(R"({"_class_name": "FluxTransformer2DModel"})", Component::kTransformer),
              HasSubstr("\"FluxTransformer2DModel\""));
  EXPECT_THAT(message(R"({"_class_name": "AutoencoderKL"})", Component::kVae),
              HasSubstr("\"AutoencoderKL\""));
  EXPECT_THAT(message(R"({"model_type": "gemma3"})", Component::kTextEncoder), HasSubstr("\"gemma3\""));
}

TEST(ForeignNames, OfOtherComponentsInACheckpointAreLeftOut) {
  EXPECT_EQ(QwenImageRenamer(Component::kTransformer, {}, nullptr)("vae.decoder.conv1.weight"), "");
  EXPECT_EQ(QwenImageRenamer(Component::kVae, {}, nullptr)("model.diffusion_model.img_in.weight"), "");
  EXPECT_EQ(QwenImageRenamer(Component::kTextEncoder, {}, nullptr)("first_stage_model.conv1.weight"), "");
  EXPECT_EQ(QwenImageRenamer(Component::kVae, {}, nullptr)("vae.conv1.weight"), "quant_conv.weight");
}

}  // namespace
}  // namespace qwen_image
