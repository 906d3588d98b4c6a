// The microscope on edits, image-to-image and inpainting: references of the official pipelines
// (tests/goldens), right models and one with a planted error.
#include <cstring>

#include "cli_fixture.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Golden {
  const char *name, *model, *command;
};
const Golden kEdit = {"micro_edit", "edit-micro", "edit"};
const Golden kEdit21 = {"micro_21_edit", "21-micro", "edit"};
const Golden kGoldens[] = {kEdit,
                           kEdit21,
                           {"micro_edit_2511", "edit-micro-2511", "edit"},
                           {"micro_edit_one", "edit-micro-one", "edit"},
                           {"micro_edit_inpaint", "edit-micro-one", "edit"},
                           {"micro_img2img", "micro", "generate"},
                           {"micro_inpaint", "micro", "generate"}};

class EditDebug : public Cli {
 protected:
  // debug_artifacts/NAME/ref is the committed reference.
  void Use(const Golden& golden) const {
    fs::create_directories(Path(std::string("debug_artifacts/") + golden.name));
    fs::create_directory_symlink(Source() / "tests/goldens" / golden.name, Reference(golden));
  }
  static fs::path Source() { return QWEN_IMAGE_SOURCE_DIR; }
  static std::string Model(const Golden& golden) {
    return (Source() / "tests/goldens/models" / golden.model).string();
  }
  fs::path Reference(const Golden& golden) const {
    return Path(std::string("debug_artifacts/") + golden.name + "/ref");
  }
  // What the reference was to record.
  std::string Checkpoints(const Golden& golden) const {
    return ReadJsonFile(Reference(golden) / "manifest.json").at("checkpoints_level");
  }
  std::set<std::string> Recorded(const Golden& golden) const {
    return Names(ReadJsonFile(Reference(golden) / "manifest.json"));
  }
  std::set<std::string> Compared(const Golden& golden) const {
    return Names(ReadJsonFile(Path(std::string("debug_artifacts/") + golden.name + "/cpp/report.json")));
  }
  RunResult Debug(const Golden& golden, const Arguments& before, const Arguments& after) const {
    return Run(Arguments{std::string("--debug=") + golden.name, "--checkpoints", Checkpoints(golden)} +
               before + Arguments{golden.command, "-q"} + after);
  }

  // The last line that bisect printed is a command that shows the error.
  void ExpectReproFails(const RunResult& bisect, const std::string& operation) const {
    const std::vector<std::string> lines = Lines(bisect.out);
    ASSERT_THAT(lines.back(), HasSubstr("qwen-image --artifacts"));
    const std::string typed = lines.back().substr(lines.back().find("qwen-image ") + 11);
    const RunResult repro = RunProgram({"-c", "'" QWEN_IMAGE_PROGRAM "' " + typed},
                                       {.folder = folder_.path(), .program = "/bin/sh"});
    EXPECT_EQ(repro.exit_code, 1) << typed << "\n" << repro.err;
    EXPECT_THAT(repro.err, HasSubstr("FAILED"));
    EXPECT_THAT(repro.err, HasSubstr(operation));
  }

 private:
  static std::set<std::string> Names(const Json& json) {
    std::set<std::string> names;
    for (const Json& entry : json.at("checkpoints")) names.insert(entry.at("name"));
    return names;
  }
};

TEST_F(EditDebug, TheReferenceAloneSaysWhatToRun) {
  for (const Golden& golden : kGoldens) {
    SCOPED_TRACE(golden.name);
    Use(golden);
    const RunResult result = Debug(golden, {}, {"-m", Model(golden), "-o", "x.png"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(Compared(golden), Recorded(golden));
  }
}

TEST_F(EditDebug, EveryComponentRunsAloneOnTheReferencesInputs) {
  const std::map<std::string, std::string> outputs = {{"text_encoder", "text_encoder/model.visual.merger"},
                                                      {"transformer", "noise_pred_step1"},
                                                      {"vae", "image"}};
  for (const Golden& golden : {kEdit, kEdit21}) {
    Use(golden);
    for (const auto& [component, output] : outputs) {
      SCOPED_TRACE(std::string(golden.name) + " " + component);
      const RunResult result = Debug(golden, {"--only", component}, {"-m", Model(golden)});
      EXPECT_EQ(result.exit_code, 0) << result.err;
      EXPECT_TRUE(Compared(golden).contains(output));
    }
  }
}

TEST_F(EditDebug, BisectFindsAnErrorInTheTransformerOf21) {
  Use(kEdit21);
  const ModelCopy model(Path("broken"), fs::path("tests/goldens/models") / kEdit21.model);
  model.EditTensors("transformer/diffusion_pytorch_model.safetensors", [](ModelCopy::StoredTensors& tensors) {
    std::string& bytes = tensors.at("transformer_blocks.0.attn.norm_k.weight").bytes;
    std::rotate(bytes.begin(), bytes.begin() + bytes.size() / 2, bytes.end());
  });
  EXPECT_EQ(Run({"bisect", kEdit21.name, "-m", Model(kEdit21)}).exit_code, 0);
  const RunResult wrong = Run({"bisect", kEdit21.name, "-m", model.path().string()});
  EXPECT_EQ(wrong.exit_code, 1) << wrong.err;
  EXPECT_THAT(wrong.out, HasSubstr("first transformer/step000/"));
}

TEST_F(EditDebug, BisectFindsAnErrorInTheVisionEncoder) {
  Use(kEdit);
  const ModelCopy model(Path("broken"), fs::path("tests/goldens/models") / kEdit.model);
  model.EditTensors("text_encoder/model.safetensors", [](ModelCopy::StoredTensors& tensors) {
    const auto found = std::find_if(tensors.begin(), tensors.end(), [](const auto& tensor) {
      return tensor.first.ends_with("visual.blocks.1.attn.proj.bias");
    });
    ASSERT_NE(found, tensors.end());
    std::string& bytes = found->second.bytes;
    std::rotate(bytes.begin(), bytes.begin() + bytes.size() / 2, bytes.end());
  });
  const RunResult right = Run({"bisect", kEdit.name, "-m", Model(kEdit)});
  EXPECT_EQ(right.exit_code, 0) << right.out << right.err;
  const RunResult wrong = Run({"bisect", kEdit.name, "-m", model.path().string()});
  EXPECT_EQ(wrong.exit_code, 1) << wrong.err;
  EXPECT_THAT(wrong.out, HasSubstr("text_encoder/model.visual.blocks.1.attn.proj"));
  ExpectReproFails(wrong, "text_encoder/model.visual.blocks.1.attn.proj");
}

TEST_F(EditDebug, ReprosOfTheTransformerAndTheVaeEncoderWork) {
  const std::pair<std::string, std::string> planted[] = {
      {"transformer/diffusion_pytorch_model.safetensors", "transformer_blocks.0.img_mlp.net.2.bias"},
      {"vae/diffusion_pytorch_model.safetensors", "encoder.conv_out.bias"}};
  Use(kEdit);
  for (const auto& [file, tensor] : planted) {
    SCOPED_TRACE(tensor);
    const ModelCopy model(Path("broken-" + tensor), fs::path("tests/goldens/models") / kEdit.model);
    model.EditTensors(file, [&name = tensor](ModelCopy::StoredTensors& tensors) {
      std::string& bytes = tensors.at(name).bytes;
      std::rotate(bytes.begin(), bytes.begin() + bytes.size() / 2, bytes.end());
    });
    const RunResult wrong = Run({"bisect", kEdit.name, "-m", model.path().string()});
    EXPECT_EQ(wrong.exit_code, 1) << wrong.err;
    ExpectReproFails(wrong, "");
    fs::remove_all(Path(std::string("debug_artifacts/") + kEdit.name + "-repro"));
  }
}

// A model that draws from text may say in qwen_image.json that it edits, too, and as what.
TEST_F(EditDebug, TheManifestNamesThePipelineThatTheModelEditsAs) {
  const ModelCopy model(Path("both"));
  model.Edit("qwen_image.json", "edit-2509", "edit");
  const RunResult drawn = Run({"generate", "x", "-q", "--size", "32x32", "--steps", "1", "-o", "in.png"});
  ASSERT_EQ(drawn.exit_code, 0) << drawn.err;
  const RunResult result = Run({"--debug=both", "--checkpoints", "boundaries", "edit", "x", "-i", "in.png",
                                "-q", "--steps", "1", "-m", model.path().string(), "-o", "out.png"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(ReadJsonFile(Path("debug_artifacts/both/cpp/manifest.json")).at("pipeline"),
            "QwenImageEditPipeline");
}

TEST_F(EditDebug, CommandsAreNotMixedUp) {
  Use(kEdit);
  ExpectRefused({"--debug=micro_edit", "generate", "-m", Model(kEdit)}, kUsage, "use the command edit");
  const Golden inpaint = {"micro_inpaint", "micro", "generate"};
  Use(inpaint);
  ExpectRefused({"--debug=micro_inpaint", "edit", "-m", Model(kEdit)}, kUsage, "use the command generate");
  ExpectRefused({"--debug=micro_inpaint", "generate", "--strength", "0.2", "-m", Model(inpaint)}, kUsage,
                "another strength");
}

TEST_F(EditDebug, ListsTheCheckpointsOfAnEdit) {
  const RunResult result = Run({"--list-checkpoints", "edit", "-m", Model(kEdit), "-i", "a.png", "-i",
                                "b.png", "--steps", "2", "--cfg", "1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::set<std::string> names;
  for (const std::string& line : Lines(result.out)) names.insert(line.substr(line.rfind(' ') + 1));
  Use(kEdit);
  for (const std::string& name : Recorded(kEdit)) EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_TRUE(names.contains("vae.image1/encoder.conv_in"));
}

}  // namespace
}  // namespace qwen_image
