// Models that are not what they should be.
#include "cli_fixture.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(Cli, RefusesWhatIsNoModelFolder) {
  folder_.Write("file", "");
  fs::create_directory(Path("empty"));
  const Arguments request = {"generate", "x", "-m"};
  ExpectRefused(request + Arguments{"absent"}, kBadInput, "there is no model absent");
  ExpectRefused(request + Arguments{"file"}, kBadInput, "file has 0 bytes");
  ExpectRefused(request + Arguments{"empty"}, kBadInput, "empty is not a model folder");
}

TEST_F(Cli, RefusesBrokenJsonByFile) {
  for (const char* file :
       {"model_index.json", "transformer/config.json", "text_encoder/config.json", "vae/config.json",
        "scheduler/scheduler_config.json", "tokenizer/tokenizer.json", "qwen_image.json"}) {
    SCOPED_TRACE(file);
    const TempFolder folder;
    const ModelCopy model(folder.path() / "model");
    for (const char* text : {"{\"a\": ", "", "[]", "\xff\xfe"}) {
      model.Write(file, text);
      ExpectModelRefused(model, file);
    }
  }
}

TEST_F(Cli, RefusesOtherModelsByName) {
  for (const char* name : {"QwenImageLayeredPipeline", "FluxPipeline"}) {
    const TempFolder folder;
    const ModelCopy model(folder.path() / "model");
    model.Edit("model_index.json", "QwenImagePipeline", name);
    ExpectModelRefused(model, name);
  }
}

TEST_F(Cli, RefusesAMissingPart) {
  const TempFolder folder;
  const ModelCopy model(folder.path() / "model");
  fs::remove(model.path() / "vae/diffusion_pytorch_model.safetensors");
  ExpectModelRefused(model, "vae holds no weights");
  fs::remove_all(model.path() / "vae");
  fs::remove_all(model.path() / "scheduler");
  ExpectModelRefused(model, "missing: vae, scheduler");
}

TEST_F(Cli, RefusesTruncatedWeights) {
  for (const char* file : {"transformer/diffusion_pytorch_model.safetensors",
                           "text_encoder/model.safetensors", "vae/diffusion_pytorch_model.safetensors"}) {
    const TempFolder folder;
    const ModelCopy model(folder.path() / "model");
    const int64_t size = static_cast<int64_t>(fs::file_size(model.path() / file));
    for (const int64_t left : {size - 1, size / 2, int64_t{100}, int64_t{7}, int64_t{0}}) {
      SCOPED_TRACE(left);
      model.Truncate(file, left);
      ExpectModelRefused(model, file);
    }
  }
}

TEST_F(Cli, RefusesAMissingShard) {
  const TempFolder folder;
  const ModelCopy model(folder.path() / "model");
  model.Write("transformer/diffusion_pytorch_model.safetensors.index.json",
              R"({"weight_map": {"img_in.bias": "absent-00001-of-00001.safetensors"}})");
  ExpectModelRefused(model, "absent-00001-of-00001.safetensors");
  model.Write("transformer/diffusion_pytorch_model.safetensors.index.json",
              R"({"weight_map": {"img_in.bias": "../vae/diffusion_pytorch_model.safetensors"}})");
  ExpectModelRefused(model, "../vae/diffusion_pytorch_model.safetensors");
}

TEST_F(Cli, ListsAllThatIsWrongWithTheTensors) {
  const TempFolder folder;
  const ModelCopy model(folder.path() / "model");
  model.EditTensors("transformer/diffusion_pytorch_model.safetensors", [](ModelCopy::StoredTensors& tensors) {
    tensors.erase("img_in.bias");
    tensors.at("img_in.weight").shape = {64, 128};
    tensors["extra.weight"] = {"BF16", {1}, std::string(2, '\0')};
    tensors.at("proj_out.bias").dtype = "I16";
  });
  const RunResult result = Run({"generate", "x", "-m", model.path().string()});
  EXPECT_EQ(result.exit_code, kBadInput);
  EXPECT_THAT(result.err, AllOf(HasSubstr("1 missing, 1 of a wrong shape, 1 not readable, 1 not expected"),
                                HasSubstr("\n  img_in.bias is missing, expected with shape [128]\n"),
                                HasSubstr("\n  extra.weight is not expected\n")));
  const std::vector<std::string> lines = Lines(result.err);
  EXPECT_EQ(lines.size(), 5u) << result.err;
  EXPECT_THAT(lines, testing::Contains(
                         AllOf(HasSubstr("img_in.weight"), HasSubstr("[64, 128]"), HasSubstr("[128, 64]"))));
  EXPECT_THAT(lines, testing::Contains(AllOf(HasSubstr("proj_out.bias"), HasSubstr("I16"))));
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(Cli, RefusesAConfigThatDisagreesWithTheWeights) {
  const TempFolder folder;
  const ModelCopy model(folder.path() / "model");
  model.Edit("transformer/config.json", "\"num_layers\": 4", "\"num_layers\": 5");
  ExpectModelRefused(model, "transformer_blocks.4.attn.add_k_proj.bias is missing, expected with shape [128]",
                     50);
  model.Edit("transformer/config.json", "\"num_layers\": 5", "\"num_layers\": 3");
  ExpectModelRefused(model, "transformer_blocks.3.attn.add_k_proj.bias is not expected", 50);
  model.Edit("transformer/config.json", "\"num_layers\": 3", "\"num_layers\": 4000000");
  ExpectModelRefused(model, "num_layers", 50);
}

TEST_F(Cli, RefusesPartsOfDifferentModels) {
  const TempFolder folder;
  const ModelCopy model(folder.path() / "model");
  model.Edit("transformer/config.json", "\"joint_attention_dim\": 128", "\"joint_attention_dim\": 64");
  model.EditTensors("transformer/diffusion_pytorch_model.safetensors", [](ModelCopy::StoredTensors& tensors) {
    tensors.at("txt_norm.weight") = {"BF16", {64}, std::string(64 * 2, '\1')};
    tensors.at("txt_in.weight") = {"BF16", {128, 64}, std::string(128 * 64 * 2, '\1')};
  });
  ExpectModelRefused(model, "the text encoder's width is 128, but the transformer expects 64");
}

TEST_F(Cli, RefusesToWriteAPictureOfNan) {
  const TempFolder folder;
  const ModelCopy model(folder.path() / "model");
  model.EditTensors("vae/diffusion_pytorch_model.safetensors", [](ModelCopy::StoredTensors& tensors) {
    for (char& byte : tensors.at("decoder.conv_out.bias").bytes) byte = '\xff';
  });
  ExpectRefused(
      Arguments{"generate", "x", "-q", "-m", model.path().string()} + kQuick, kBadInput,
      "vae/diffusion_pytorch_model.safetensors: tensor \"decoder.conv_out.bias\" holds NaN or infinity");
}

TEST_F(Cli, WeightsTruncatedWhileInUseAreAnError) {
  const TempFolder folder;
  const ModelCopy model(folder.path() / "model");
  const char* file = "transformer/diffusion_pytorch_model.safetensors";
  const auto size = static_cast<int64_t>(fs::file_size(model.path() / file));
  model.Truncate(file, size);  // a copy of its own
  RunningProgram program(
      {"generate", "x", "--steps", "1000", "--size", "512x512", "-o", "out.png", "-m", model.path().string()},
      {.folder = folder_.path()});
  ASSERT_TRUE(program.WaitForError("step 0/1000"));
  fs::resize_file(model.path() / file, 100'000);
  const RunResult result = program.Finish();
  EXPECT_EQ(result.exit_code, kBadInput) << result.err;
  EXPECT_THAT(Lines(result.err).back(),
              AllOf(HasSubstr(file), EndsWith("was changed or truncated while it was in use")));
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(Files(), IsEmpty());
}

}  // namespace
}  // namespace qwen_image
