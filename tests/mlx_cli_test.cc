// Other devices as a user names them, in a build with MLX: its CPU device, which every machine has.
#include <csignal>

#include "cli_fixture.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const Arguments kOnMlx = {"--device", "mlx-cpu"};

class MlxCli : public Cli {
 protected:
  static std::string Source(const std::string& path) {
    return (fs::path(QWEN_IMAGE_SOURCE_DIR) / path).string();
  }
  // debug_artifacts/NAME/ref is the committed reference.
  void UseGolden(const std::string& name) const {
    fs::create_directories(Path("debug_artifacts/" + name));
    fs::create_directory_symlink(Source("tests/goldens/" + name), Path("debug_artifacts/" + name + "/ref"));
  }
  bool HasGpu() const {
    const Json json = Json::parse(Run({"devices", "--json"}).out);
    for (const Json& device : json.at("devices"))
      if (device.at("name") == "gpu") return device.at("available");
    return false;
  }
  // Both twins draw it within a level.
  void ExpectSamePicture(const Arguments& arguments) const {
    const Image cpu = Draw(arguments + Arguments{"--device", "cpu", "--precision", "exact"});
    const Image mlx = Draw(arguments + kOnMlx);
    ASSERT_EQ(cpu.pixels.size(), mlx.pixels.size());
    for (size_t i = 0; i < cpu.pixels.size(); ++i)
      ASSERT_LE(std::abs(cpu.pixels[i] - mlx.pixels[i]), 1) << "value " << i;
  }
};

TEST_F(MlxCli, DevicesListsWhatThereIs) {
  const RunResult text = Run({"devices"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out,
              AllOf(HasSubstr("gpu"), HasSubstr("mlx-cpu"), HasSubstr("default"), HasSubstr("MLX")));
  const Json json = Json::parse(Run({"devices", "--json"}).out);
  EXPECT_EQ(json.at("default"), HasGpu() ? "gpu" : "cpu");
  std::vector<std::string> names;
  for (const Json& device : json.at("devices")) names.push_back(device.at("name"));
  EXPECT_THAT(names, ElementsAre("gpu", "cpu", "mlx-cpu"));
}

TEST_F(MlxCli, AGpuThatIsNotThereIsRefused) {
  if (HasGpu()) GTEST_SKIP() << "there is one";
  ExpectRefused({"generate", "x", "--device", "gpu", "-o", "x.png"}, kUsage, "finds no GPU");
  ExpectRefused({"selftest", "--device", "gpu"}, kUsage, "finds no GPU");
  ExpectRefused({"bench", "--device", "gpu"}, kUsage, "finds no GPU");
  ExpectRefused({"serve", "--device", "gpu"}, kUsage, "finds no GPU");
}

TEST_F(MlxCli, TheSelftestComparesEveryStage) {
  const RunResult result =
      Run({"selftest", "--device", "mlx-cpu", "--size", "64x48", "--steps", "2", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_TRUE(json.at("passed"));
  std::set<std::string> stages;
  for (const Json& stage : json.at("stages")) {
    stages.insert(stage.at("stage"));
    EXPECT_LE(stage.at("nmse").get<double>(), 1e-8) << stage;
    EXPECT_GT(stage.at("tensors"), 4) << stage;
  }
  EXPECT_EQ(stages, (std::set<std::string>{"text encoder", "vision encoder", "transformer", "VAE encoder",
                                           "VAE decoder"}));
  ASSERT_EQ(json.at("pictures").size(), 2u);
  for (const Json& picture : json.at("pictures")) EXPECT_LE(picture.at("max_levels").get<double>(), 1);
}

// The device rounds what flows between layers to 8 bits: far beyond the limits of exact, within those of
// fast.
TEST_F(MlxCli, TheSelftestOfFastPrecisionHasWiderLimits) {
  const RunResult result = Run({"selftest", "--device", "mlx-cpu", "--precision", "fast", "--size", "64x48",
                                "--steps", "2", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  const Json json = Json::parse(result.out);
  ASSERT_EQ(json.at("stages").size(), 5u);
  for (const Json& stage : json.at("stages")) {
    const std::string name = stage.at("stage");
    const bool in_floats = name.starts_with("VAE");
    EXPECT_EQ(stage.at("nmse").get<double>() > 1e-8, !in_floats) << stage;
  }
}

TEST_F(MlxCli, TheSelftestIsForPeopleFirst) {
  const RunResult result =
      Run({"selftest", "--size", "64x48", "--steps", "1", "-m", Source("tests/goldens/models/micro")});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("transformer"), HasSubstr("text to picture"), HasSubstr("passed")));
  EXPECT_THAT(result.err, AllOf(HasSubstr("[1/"), HasSubstr("on the CPU")));
}

TEST_F(MlxCli, DrawsWhatTheCpuDraws) { ExpectSamePicture(Arguments{"a red circle"} + kQuick); }

TEST_F(MlxCli, DrawsWhatTheCpuDrawsFromFourBits) {
  ASSERT_EQ(Run({"convert", Source("models/tiny"), "-o", "four", "--to", "q4", "-q"}).exit_code, 0);
  ExpectSamePicture(Arguments{"a red circle", "-m", "four"} + kQuick);
  const RunResult result =
      Run(Arguments{"generate", "a red circle", "-m", "four", "--json", "-o", "x.png"} + kQuick + kOnMlx);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json weights = Json::parse(result.out).at("weights");
  EXPECT_GT(weights.at("as_in_file").at("formats").at("MLX 4-bit"), 50);
  EXPECT_EQ(weights.at("decoded").at("matrices"), 0);
  EXPECT_THAT(result.err, Not(HasSubstr("note:")));  // nothing that a user would wonder about
}

// Integers with scales of other tools go over with the same values; fp8, which MLX has not, is decoded.
TEST_F(MlxCli, SaysWhatBecomesOfOtherToolsWeights) {
  const auto part = [&](const std::string& component, const std::string& file) {
    fs::create_directories(Path(file + ".d"));
    fs::copy_file(Source("tests/goldens/formats/configs/wide32/" + component + "/config.json"),
                  Path(file + ".d/config.json"), fs::copy_options::overwrite_existing);
    fs::copy_file(Source("tests/goldens/formats/" + file), Path(file + ".d/" + file),
                  fs::copy_options::overwrite_existing);
    return Path(file + ".d/" + file).string();
  };
  const auto arguments = [&](const char* transformer) {
    return Arguments{"a red circle",
                     "--cfg",
                     "1",
                     "--transformer",
                     part("transformer", transformer),
                     "--text-encoder",
                     part("text_encoder", "text_encoder_q8_0.gguf"),
                     "--vae",
                     part("vae", "comfy_vae.safetensors")} +
           kQuick;
  };
  struct Case {
    const char *file, *kind, *format, *said;
  };
  for (const Case& c : {Case{"transformer_q4_0.gguf", "regrouped", "Q4_0", "repacked in MLX's groups"},
                        Case{"transformer_q8_0.gguf", "regrouped", "Q8_0", "repacked in MLX's groups"},
                        Case{"comfy_fp8_scaled.safetensors", "decoded", "F8_E4M3", "decoded"}}) {
    SCOPED_TRACE(c.file);
    ExpectSamePicture(arguments(c.file));
    const RunResult result = Run(Arguments{"generate", "--json", "-o", "x.png"} + arguments(c.file) + kOnMlx);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("note: weights on mlx-cpu"), HasSubstr(c.said), HasSubstr(c.format)));
    const Json share = Json::parse(result.out).at("weights").at(c.kind);
    EXPECT_GT(share.at("formats").at(c.format), 10);
    EXPECT_GT(share.at("device_bytes"), share.at("file_bytes"));
  }
}

TEST_F(MlxCli, TheDeviceIsInTheRecordAndNotTakenFromIt) {
  const RunResult result =
      Run(Arguments{"generate", "a red circle", "--json", "-o", "x.png"} + kQuick + kOnMlx);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out).at("device"), "mlx-cpu");
  const Json again = Describe({"--from", "x.png", "--device", "cpu"});
  EXPECT_EQ(again.at("device"), "cpu");
  EXPECT_EQ(again.at("precision"), "exact");  // which is the default there
  if (!HasGpu()) EXPECT_EQ(Describe({"--from", "x.png"}).at("device"), "cpu");
}

TEST_F(MlxCli, FastPrecisionIsAnotherPictureOnlyByALittle) {
  const Arguments draw = Arguments{"a red circle"} + kQuick + kOnMlx;
  const Image exact = Draw(draw), fast = Draw(draw + Arguments{"--precision", "fast", "--threads", "1"});
  ASSERT_EQ(exact.pixels.size(), fast.pixels.size());
  int64_t apart = 0, square = 0;
  for (size_t i = 0; i < exact.pixels.size(); ++i) {
    const int64_t d = exact.pixels[i] - fast.pixels[i];
    apart += d != 0;
    square += d * d;
  }
  EXPECT_GT(apart, 0);
  EXPECT_LT(square, 64 * static_cast<int64_t>(exact.pixels.size()));  // 30 dB
}

TEST_F(MlxCli, TheMicroscopeComparesItWithTheOfficialPipeline) {
  UseGolden("micro_all");
  const RunResult debug = Run(Arguments{"--debug=micro_all", "--checkpoints", "all", "generate", "-q", "-m",
                                        Source("tests/goldens/models/micro"), "-o", "x.png"} +
                              kOnMlx);
  EXPECT_EQ(debug.exit_code, 0) << debug.err;
  EXPECT_EQ(ReadJsonFile(Path("debug_artifacts/micro_all/cpp/manifest.json")).at("device"), "mlx-cpu");
  UseGolden("micro_edit_2511");
  const Arguments model = {"-m", Source("tests/goldens/models/edit-micro-2511")};
  const RunResult edit =
      Run(Arguments{"--debug=micro_edit_2511", "--substitute", "*", "edit", "-q", "-o", "x.png"} + model +
          kOnMlx);
  EXPECT_EQ(edit.exit_code, 0) << edit.err;
  const RunResult bisect = Run(Arguments{"bisect", "micro_edit_2511"} + model + kOnMlx);
  EXPECT_EQ(bisect.exit_code, 0) << bisect.out << bisect.err;
}

TEST_F(MlxCli, BisectFindsAPlantedErrorOnIt) {
  UseGolden("micro_all");
  const ModelCopy model(Path("broken"), "tests/goldens/models/micro");
  model.EditTensors("transformer/diffusion_pytorch_model-00002-of-00002.safetensors",
                    [](ModelCopy::StoredTensors& tensors) {
                      std::string& bytes = tensors.at("transformer_blocks.1.attn.to_q.weight").bytes;
                      std::rotate(bytes.begin(),
                                  bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / 2), bytes.end());
                    });
  const RunResult result =
      Run(Arguments{"bisect", "micro_all", "--no-repro", "--json", "-m", model.path().string()} + kOnMlx);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(Json::parse(result.out).at("culprit"), HasSubstr("transformer_blocks.1.attn.to_q"));
}

TEST_F(MlxCli, BenchTimesEveryStage) {
  const RunResult result =
      Run(Arguments{"bench", "--sizes", "64x48,48x32", "--steps", "1,2", "--json"} + kOnMlx);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json.at("device"), "mlx-cpu");
  ASSERT_EQ(json.at("pictures").size(), 4u);
  for (const Json& picture : json.at("pictures")) {
    const Json& seconds = picture.at("seconds");
    EXPECT_GT(seconds.at("encode_prompt"), 0);
    EXPECT_FALSE(picture.at("prompt_from_cache"));  // that would cost nothing
    EXPECT_GE(seconds.at("total").get<double>(),
              seconds.at("denoise").get<double>() + seconds.at("decode").get<double>());
    EXPECT_GT(picture.at("device_memory_bytes"), 1000000);
    EXPECT_TRUE(picture.at("seconds_to_beat").is_null());  // a small model is no match
  }
}

TEST_F(MlxCli, CtrlCStopsIt) {
  RunningProgram program(
      Arguments{"generate", "a red circle", "--steps", "1000", "--no-prompt-cache", "-o", "x.png"} + kOnMlx,
      {.folder = folder_.path()});
  ASSERT_TRUE(program.WaitForError("step 0/1000"));
  program.Signal(SIGINT);
  EXPECT_EQ(program.Finish().exit_code, kInterrupted);
  EXPECT_FALSE(fs::exists(Path("x.png")));
}

}  // namespace
}  // namespace qwen_image
