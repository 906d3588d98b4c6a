// Looking for errors as a user does: --debug, --only, --trace, --list-checkpoints and bisect against
// references of the official pipeline (tests/goldens), with right models and with planted errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <sstream>

#include "cli_harness.h"
#include "files/json.h"
#include "files/npy.h"
#include "files/png.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

using Arguments = std::vector<std::string>;

std::set<std::string> CheckpointNames(const fs::path& manifest) {
  std::set<std::string> names;
  const Json json = ReadJsonFile(manifest);
  for (const Json& entry : json.at("checkpoints")) names.insert(entry.at("name"));
  return names;
}

class DebugCli : public testing::Test {
 protected:
  // debug_artifacts/NAME/ref is the committed reference `golden`.
  void UseGolden(const std::string& golden, const std::string& name = "gold") const {
    fs::create_directories(Path("debug_artifacts/" + name));
    fs::create_directory_symlink(fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens" / golden,
                                 Path("debug_artifacts/" + name + "/ref"));
  }
  RunResult Run(const Arguments& arguments) const {
    return RunProgram(arguments, {.folder = folder_.path()});
  }
  Json Report(const std::string& name = "gold") const {
    return ReadJsonFile(Path("debug_artifacts/" + name + "/cpp/report.json"));
  }
  std::set<std::string> Compared() const {
    std::set<std::string> names;
    const Json report = Report();
    for (const Json& row : report.at("checkpoints")) names.insert(row.at("name"));
    return names;
  }
  // models/tiny with one tensor changed.
  std::string BrokenModel(const std::string& file, const std::string& tensor,
                          const std::function<void(std::vector<float>&)>& change) const {
    const ModelCopy model(Path("broken"));
    model.EditTensors(file, [&](ModelCopy::StoredTensors& tensors) {
      ModelCopy::StoredTensor& t = tensors.at(tensor);
      // The tiny model is stored in bfloat16 or float32; a wider type is as good.
      std::vector<float> values(static_cast<size_t>(ElementCount(t.shape)));
      const size_t width = t.bytes.size() / values.size();
      for (size_t i = 0; i < values.size(); ++i) {
        uint32_t bits = 0;
        std::memcpy(reinterpret_cast<char*>(&bits) + 4 - width, t.bytes.data() + i * width, width);
        std::memcpy(&values[i], &bits, 4);
      }
      change(values);
      t.dtype = "F32";
      t.bytes.assign(reinterpret_cast<const char*>(values.data()), 4 * values.size());
    });
    return model.path().string();
  }
  fs::path Path(const std::string& name) const { return folder_.path() / name; }

  const TempFolder folder_;
};

void Double(std::vector<float>& values) {
  for (float& v : values) v *= 2;
}

TEST_F(DebugCli, TheReferenceAloneSaysWhatToRun) {
  UseGolden("tiny_all");
  const RunResult result = Run({"--debug=gold", "--checkpoints", "all", "generate", "-q", "-o", "x.png"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(Report().at("passed"));
  EXPECT_EQ(Compared(), CheckpointNames(Path("debug_artifacts/gold/ref/manifest.json")));
}

TEST_F(DebugCli, TheReferencesSigmasAreTaken) {
  const Arguments draw = {"a star", "--size", "64x48", "-q", "-o", "x.png"};
  const auto run = [&](const Arguments& more) {
    Arguments all = {"--debug=own", "--checkpoints", "boundaries", "generate"};
    all.insert(all.end(), more.begin(), more.end());
    return Run(all);
  };
  Arguments first = draw;
  first.insert(first.end(), {"--sigmas", "1,0.9,0.3"});  // the scheduler makes any two the same
  ASSERT_EQ(run(first).exit_code, 0);
  fs::rename(Path("debug_artifacts/own/cpp"), Path("debug_artifacts/own/ref"));
  EXPECT_EQ(ReadJsonFile(Path("debug_artifacts/own/ref/manifest.json")).at("sigmas"), Json({1, 0.9, 0.3}));
  const RunResult again = run({"-q", "-o", "x.png"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(Report("own").at("passed"));
  EXPECT_EQ(run({"--sigmas", "1.0,0.90,.3", "-q", "-o", "x.png"}).exit_code, 0);
  const RunResult other = run({"--sigmas", "1,0.5,0.3", "-q", "-o", "x.png"});
  EXPECT_EQ(other.exit_code, kUsage);
  EXPECT_THAT(other.err, HasSubstr("the reference run has other sigmas (1,0.9,0.3)"));
}

TEST_F(DebugCli, LookingDoesNotChangeThePicture) {
  const Arguments draw = {"generate", "a red circle on a blue background", "--size", "64x48", "--steps", "2",
                          "-q"};
  const auto picture = [&](Arguments before) {
    before.insert(before.end(), draw.begin(), draw.end());
    before.insert(before.end(), {"-o", "x.png"});
    const RunResult result = Run(before);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return ReadPng(Path("x.png")).pixels;
  };
  const auto plain = picture({});
  EXPECT_EQ(picture({"--debug", "--checkpoints", "all,*:attn_weights"}), plain);
  EXPECT_EQ(picture({"--trace"}), plain);
}

TEST_F(DebugCli, RecordsTheNamedCheckpointsOnly) {
  const RunResult result =
      Run({"--debug=a", "--checkpoints", "*.0.attn.to_q,image,*.1:attn_weights", "generate", "x", "--size",
           "64x48", "--steps", "2", "--cfg", "1", "-q", "-o", "x.png"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(CheckpointNames(Path("debug_artifacts/a/cpp/manifest.json")),
            (std::set<std::string>{"image", "transformer/step000/transformer_blocks.0.attn.to_q",
                                   "transformer/step000/transformer_blocks.1:attn_weights",
                                   "transformer/step001/transformer_blocks.0.attn.to_q",
                                   "transformer/step001/transformer_blocks.1:attn_weights"}));
  // Every query's weights add up to 1.
  const Tensor weights =
      ReadNpyFloat(Path("debug_artifacts/a/cpp/transformer/step000/transformer_blocks.1:attn_weights.npy"));
  for (int64_t row = 0; row < weights.size() / weights.shape().back(); ++row) {
    double sum = 0;
    for (int64_t i = 0; i < weights.shape().back(); ++i) sum += weights.row(row)[i];
    ASSERT_NEAR(sum, 1, 1e-5);
  }
}

TEST_F(DebugCli, EveryComponentRunsAloneOnTheReferencesInputs) {
  UseGolden("tiny_all");
  const std::map<std::string, std::string> outputs = {
      {"text_encoder", "prompt_embeds"}, {"transformer", "noise_pred_step1"}, {"vae", "image"}};
  for (const auto& [component, output] : outputs) {
    SCOPED_TRACE(component);
    const RunResult result =
        Run({"--debug=gold", "--only", component, "--checkpoints", "all", "generate", "-q"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(Compared().contains(output));
    for (const auto& [other, others_output] : outputs)
      EXPECT_EQ(Compared().contains(others_output), other == component) << others_output;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1) << "no picture was asked for";
}

TEST_F(DebugCli, TheVaeAloneDrawsTheReferencesPicture) {
  UseGolden("tiny_all");
  const RunResult result = Run({"--debug=gold", "--only", "vae", "generate", "-q", "-o", "x.png"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Image ours = ReadPng(Path("x.png")), reference = ReadPng(Path("debug_artifacts/gold/ref/image.png"));
  ASSERT_EQ(ours.pixels.size(), reference.pixels.size());
  int worst = 0;
  for (size_t i = 0; i < ours.pixels.size(); ++i)
    worst = std::max(worst, std::abs(ours.pixels[i] - reference.pixels[i]));
  EXPECT_LE(worst, 1);
}

TEST_F(DebugCli, RefusesWhatCannotBeRunAlone) {
  const auto expect = [&](const Arguments& arguments, int code, const std::string& message) {
    const RunResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err, AllOf(StartsWith("qwen-image: "), HasSubstr(message)));
  };
  expect({"--only", "vae", "generate"}, kUsage, "--debug=RUN_ID");
  expect({"--debug=none", "--only", "vae", "generate"}, kUsage, "debug_artifacts/none/ref");
  expect({"--debug=none", "--substitute", "*", "generate"}, kUsage, "debug_artifacts/none/ref");
  UseGolden("tiny_all");
  expect({"--debug=gold", "--only", "scheduler", "generate"}, kUsage, "--only");
  expect({"--debug=gold", "--checkpoints", "deep", "generate"}, kUsage, "boundaries, blocks, all");
  expect({"--debug=gold", "generate", "--steps", "7"}, kUsage, "number of steps");
  expect({"--debug=gold", "--only", "transformer", "generate", "-m",
          (fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/models/micro").string()},
         kBadInput, "prompt_embeds has the shape");
}

TEST_F(DebugCli, ListsTheCheckpointsThatTheReferenceHolds) {
  const RunResult result = Run({"--list-checkpoints", "generate", "--steps", "2", "--cfg", "1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::set<std::string> names;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("by name")) names.insert(line.substr(line.rfind(' ') + 1));
  }
  EXPECT_EQ(names, CheckpointNames(fs::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/tiny_all/manifest.json"));
}

TEST_F(DebugCli, TracesHealthTimeAndMemory) {
  const RunResult result =
      Run({"--trace=t.json", "generate", "x", "--size", "64x48", "--steps", "2", "-o", "x.png"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("attention entropy"), HasSubstr("transformer/transformer_blocks.3:img"),
                    HasSubstr("t.json"), Not(HasSubstr("FAILED"))));
  std::set<std::string> names;
  const Json trace = ReadJsonFile(Path("t.json"));
  for (const Json& e : trace.at("traceEvents")) names.insert(e.at("name"));
  EXPECT_TRUE(names.contains("transformer/step001.neg/transformer_blocks.0:img"));
  EXPECT_TRUE(names.contains("vae/decoder.up_blocks.3"));
  EXPECT_TRUE(names.contains("memory"));
}

TEST_F(DebugCli, ATraceIsWrittenEvenIfThereIsNoPicture) {
  const std::string model = BrokenModel(kTransformer, "transformer_blocks.1.attn.to_q.bias",
                                        [](std::vector<float>& values) { values[0] = NAN; });
  const RunResult result =
      Run({"--trace=t.json", "generate", "x", "--size", "64x48", "--steps", "1", "-m", model});
  EXPECT_EQ(result.exit_code, kBadInput);
  EXPECT_THAT(result.err, AllOf(HasSubstr("NaN: "), HasSubstr("health: FAILED")));
  const Json trace = ReadJsonFile(Path("t.json"));
  for (const Json& e : trace.at("traceEvents")) {
    if (e.at("name") == "transformer/step000/transformer_blocks.0:img") {
      EXPECT_EQ(e.at("args").at("nan"), 0);
    } else if (e.at("name") == "transformer/step000/transformer_blocks.1:img") {
      EXPECT_GT(e.at("args").at("nan"), 0);
    }
  }
}

TEST_F(DebugCli, RangesOfAReferenceJudgeARun) {
  UseGolden("tiny_all");
  const RunResult right = Run({"--debug=gold", "--trace", "generate", "-o", "x.png"});
  EXPECT_EQ(right.exit_code, 0) << right.err;
  EXPECT_THAT(right.err, HasSubstr("normal"));
  const std::string model = BrokenModel(kTransformer, "img_in.weight", [](std::vector<float>& values) {
    for (float& v : values) v *= 100;
  });
  const RunResult wrong = Run({"--debug=gold", "--trace", "generate", "-o", "x.png", "-m", model});
  EXPECT_EQ(wrong.exit_code, kFailed);
  EXPECT_THAT(wrong.err, HasSubstr("OUT OF RANGE"));
}

TEST_F(DebugCli, TheReferencesNoiseIsUsedWhateverIsCompared) {
  // Noise that no seed gives.
  std::vector<float> noise(12 * 64);
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = std::sin(static_cast<float>(i * i));
  WriteNpy(Path("noise.npy"), noise.data(), {1, 12, 64});
  ASSERT_EQ(Run({"--debug=own", "--checkpoints", "all", "generate", "x", "--size", "64x48", "--steps", "2",
                 "--latents", "noise.npy", "-q", "-o", "x.png"})
                .exit_code,
            0);
  fs::rename(Path("debug_artifacts/own/cpp"), Path("debug_artifacts/own/ref"));
  for (const char* checkpoints : {"boundaries", "all", "image", "*.attn.to_q"}) {
    const RunResult result = Run({"--debug=own", "--checkpoints", checkpoints, "generate", "-o", "x.png"});
    EXPECT_EQ(result.exit_code, 0) << checkpoints << result.err;
  }
  const RunResult noted = Run({"--debug=own", "generate", "-o", "x.png"});
  EXPECT_THAT(noted.err, HasSubstr("noise is not what its seed gives here"));
}

TEST_F(DebugCli, SubstitutesWhatIsNotCompared) {
  UseGolden("tiny_all");
  const std::string model = BrokenModel(kTransformer, "norm_out.linear.weight", Double);
  const Arguments run = {"--debug=gold", "--checkpoints", "boundaries"};
  const auto with = [&](Arguments more) {
    Arguments all = run;
    all.insert(all.end(), more.begin(), more.end());
    all.insert(all.end(), {"generate", "-m", model, "-o", "x.png", "-q"});
    return Run(all);
  };
  EXPECT_EQ(with({}).exit_code, kFailed);
  EXPECT_EQ(with({"--substitute", "*norm_out.linear"}).exit_code, 0) << "the broken tensor was replaced";
  const RunResult misspelt = with({"--substitute", "*norm_uot.linear"});
  EXPECT_EQ(misspelt.exit_code, kUsage);
  EXPECT_THAT(misspelt.err, HasSubstr("norm_uot"));
}

TEST_F(DebugCli, NothingToCompareIsToldBeforeTheRun) {
  UseGolden("tiny_all");
  const RunResult result = Run({"--debug=gold", "--checkpoints", "nosuch*", "generate", "-o", "x.png"});
  EXPECT_EQ(result.exit_code, kUsage) << result.err;
  EXPECT_THAT(result.err, HasSubstr("nosuch"));
  EXPECT_FALSE(fs::exists(Path("x.png")));
}

TEST_F(DebugCli, ARunReplacesTheOneBefore) {
  const auto record = [&](const std::string& checkpoints) {
    ASSERT_EQ(Run({"--debug=a", "--checkpoints", checkpoints, "generate", "x", "--size", "64x48", "--steps",
                   "1", "-q", "-o", "x.png"})
                  .exit_code,
              0);
  };
  record("all");
  record("image");
  std::set<std::string> arrays;
  for (const auto& entry : fs::recursive_directory_iterator(Path("debug_artifacts/a/cpp"))) {
    if (entry.is_regular_file()) arrays.insert(entry.path().filename().string());
  }
  EXPECT_EQ(arrays, (std::set<std::string>{"image.npy", "manifest.json"}));
}

TEST_F(DebugCli, ANanIsFoundWhereItBegins) {
  UseGolden("tiny_all");
  const std::string model = BrokenModel(kTransformer, "transformer_blocks.1.img_mlp.net.2.bias",
                                        [](std::vector<float>& values) { values[0] = NAN; });
  const RunResult debug =
      Run({"--debug=gold", "--checkpoints", "all", "generate", "-m", model, "-o", "x.png"});
  EXPECT_EQ(debug.exit_code, kBadInput) << "there is no picture";
  EXPECT_THAT(debug.err,
              AllOf(HasSubstr("first divergence: transformer/step000/transformer_blocks.1.img_mlp.net.2"),
                    HasSubstr("hint: ")));
  const RunResult bisect = Run({"bisect", "gold", "-m", model, "--no-repro", "--json"});
  EXPECT_EQ(bisect.exit_code, kFailed) << bisect.err;
  const Json json = Json::parse(bisect.out, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << bisect.out;
  EXPECT_EQ(json.at("culprit"), "transformer/step000/transformer_blocks.1.img_mlp.net.2");
}

TEST_F(DebugCli, AFullDiskIsAFailureWhereTheOutputIsTheResult) {
  UseGolden("tiny_all");
  const std::string tiny = (fs::path(QWEN_IMAGE_SOURCE_DIR) / "models/tiny").string();
  for (const Arguments& arguments :
       std::vector<Arguments>{{"--list-checkpoints"},
                              {"inspect", tiny},
                              {"bisect", "gold"},
                              {"generate", "x", "--steps", "1", "--json", "-o", "x.png"}}) {
    const RunResult result =
        RunProgram(arguments, {.folder = folder_.path(), .standard_output = Stream::kFull});
    EXPECT_EQ(result.exit_code, 5) << testing::PrintToString(arguments) << result.err;
  }
}

TEST_F(DebugCli, BisectFindsNothingInARightRun) {
  UseGolden("tiny_all");
  const RunResult result = Run({"bisect", "gold"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("no divergence"));
  EXPECT_FALSE(fs::exists(Path("debug_artifacts/gold-repro")));
}

// For each planted error: the tensor that is wrong, and the checkpoint that must be found.
TEST_F(DebugCli, BisectFindsPlantedErrors) {
  UseGolden("tiny_all");
  struct Planted {
    std::string file;
    const char *tensor, *culprit;
  };
  const Planted planted[] = {
      {kTransformer, "transformer_blocks.2.attn.to_k.weight",
       "transformer/step000/transformer_blocks.2.attn.to_k"},
      {kTransformer, "transformer_blocks.0.attn.norm_added_q.weight",
       "transformer/step000/transformer_blocks.0.attn.norm_added_q"},
      {kTransformer, "transformer_blocks.3.img_mlp.net.2.bias",
       "transformer/step000/transformer_blocks.3.img_mlp.net.2"},
      {kTransformer, "norm_out.linear.weight", "transformer/step000/norm_out.linear"},
      {"text_encoder/model.safetensors", "model.layers.1.mlp.down_proj.weight",
       "text_encoder/model.language_model.layers.1.mlp.down_proj"},
      {"vae/diffusion_pytorch_model.safetensors", "decoder.up_blocks.2.resnets.0.conv2.weight",
       "vae/decoder.up_blocks.2.resnets.0.conv2"},
  };
  for (const Planted& p : planted) {
    SCOPED_TRACE(p.tensor);
    fs::remove_all(Path("broken"));
    fs::remove_all(Path("debug_artifacts/gold-repro"));
    const std::string model = BrokenModel(p.file, p.tensor, Double);
    const RunResult result = Run({"bisect", "gold", "-m", model, "--json"});
    EXPECT_EQ(result.exit_code, kFailed) << result.err;
    const Json json = Json::parse(result.out, nullptr, false);
    ASSERT_FALSE(json.is_discarded()) << result.out;
    EXPECT_EQ(json.at("culprit"), p.culprit) << json.at("conclusion");
  }
}

TEST_F(DebugCli, TheReproShowsTheErrorInOneCommand) {
  UseGolden("tiny_all");
  const std::string model = BrokenModel(kTransformer, "transformer_blocks.1.attn.to_v.weight", Double);
  const RunResult found = Run({"bisect", "gold", "-m", model});
  ASSERT_EQ(found.exit_code, kFailed) << found.err;
  EXPECT_THAT(found.out, HasSubstr("transformer_blocks.1.attn.to_v makes the error"));

  const Json repro = ReadJsonFile(Path("debug_artifacts/gold-repro/repro.json"));
  EXPECT_THAT(
      repro.at("weights").get<std::vector<std::string>>(),
      ::testing::ElementsAre("transformer_blocks.1.attn.to_v.bias", "transformer_blocks.1.attn.to_v.weight"));
  const Arguments command = {
      "--debug=gold-repro", "--only", "transformer", "--checkpoints", repro.at("operation"),
      "--substitute",       "*",      "generate",    "--model"};
  EXPECT_THAT(repro.at("command").get<std::string>(),
              AllOf(HasSubstr("--debug=gold-repro --only transformer"), HasSubstr(model)));
  const auto run_with = [&](const std::string& folder) {
    Arguments all = command;
    all.push_back(folder);
    return Run(all).exit_code;
  };
  EXPECT_EQ(run_with(model), kFailed);
  EXPECT_EQ(run_with((fs::path(QWEN_IMAGE_SOURCE_DIR) / "models/tiny").string()), 0) << "mended";
}

TEST_F(DebugCli, BisectRefusesWhatIsNoReference) {
  const auto expect = [&](const Arguments& arguments, int code, const std::string& message) {
    const RunResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err, AllOf(StartsWith("qwen-image: "), HasSubstr(message)));
  };
  expect({"bisect"}, kUsage, "reference");
  expect({"bisect", "nowhere"}, kBadInput, "manifest.json");
  fs::create_directories(Path("empty/ref"));
  expect({"bisect", "empty"}, kBadInput, "manifest.json");
  UseGolden("tiny_all");
  expect({"bisect", "gold", "--cfg", "2.5"}, kUsage, "another cfg");
}

}  // namespace
}  // namespace qwen_image
