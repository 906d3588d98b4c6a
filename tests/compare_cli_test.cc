// `qwen-image compare` as its users meet it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli_harness.h"
#include "files/json.h"
#include "files/npy.h"
#include "files/png.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class CompareCli : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* side : {"ref", "run"}) {
      Write(std::string(side) + "/a.npy", {1, 2, 3});
      Write(std::string(side) + "/b/step2.npy", {4, 5, 6});
    }
  }

  void Write(const std::string& file, const std::vector<float>& values) const {
    fs::create_directories((folder_.path() / file).parent_path());
    WriteNpy(folder_.path() / file, values.data(), {1, static_cast<int64_t>(values.size())});
  }
  void WriteManifest(const std::string& side, Json manifest) const {
    manifest["checkpoints"] = {{{"name", "a"}, {"file", "a.npy"}},
                               {{"name", "b/step2"}, {"file", "b/step2.npy"}}};
    folder_.Write(side + "/manifest.json", manifest.dump());
  }
  RunResult Compare(std::vector<std::string> arguments, RunOptions options = {}) const {
    arguments.insert(arguments.begin(), "compare");
    options.folder = folder_.path();
    return RunProgram(arguments, options);
  }
  void ExpectRefused(const std::vector<std::string>& arguments, int exit_code, const std::string& message,
                     const RunOptions& options = {}) const {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const RunResult result = Compare(arguments, options);
    EXPECT_EQ(result.exit_code, exit_code);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, AllOf(StartsWith("qwen-image: "), HasSubstr(message)));
  }
  fs::path Path(const std::string& name) const { return folder_.path() / name; }

  const TempFolder folder_;
};

TEST_F(CompareCli, EqualFoldersPass) {
  const RunResult result = Compare({"ref", "run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("2 tensors compared, 0 failed"), EndsWith("parity: passed\n")));
  EXPECT_EQ(result.err, "");
}

TEST_F(CompareCli, ADifferenceIsFoundAndDescribed) {
  Write("run/b/step2.npy", {4, 5.5f, 6});
  const RunResult result = Compare({"ref", "run"});
  EXPECT_EQ(result.exit_code, kFailed);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("first divergence: b/step2"), HasSubstr("at [0, 1]: 5.5 in the run, 5 in the"),
                    EndsWith("parity: FAILED\n")));
  EXPECT_EQ(Compare({"ref", "run", "--atol", "0.5"}).exit_code, 0);
  EXPECT_EQ(Compare({"ref", "run", "--rtol", "0.1"}).exit_code, 0);
  EXPECT_EQ(Compare({"ref", "run", "--atol", "0.4"}).exit_code, kFailed);
  EXPECT_EQ(Compare({"ref", "run", "--only", "a"}).exit_code, 0);
}

TEST_F(CompareCli, PicturesWithAlpha) {
  const auto write = [&](const char* name, std::vector<uint8_t> pixel, int64_t channels) {
    Image image{16, 16, {}, channels};
    for (int i = 0; i < 256; ++i) image.pixels.insert(image.pixels.end(), pixel.begin(), pixel.end());
    WritePng(Path(name), image);
  };
  write("clear.png", {10, 20, 30, 100}, 4);
  write("near.png", {10, 20, 30, 101}, 4);
  write("opaque.png", {10, 20, 30, 255}, 4);
  write("rgb.png", {10, 20, 30}, 3);
  EXPECT_EQ(Compare({"clear.png", "clear.png"}).exit_code, 0);
  const RunResult near = Compare({"clear.png", "near.png"});  // one level of one channel everywhere: 54 dB
  EXPECT_EQ(near.exit_code, kFailed);
  EXPECT_THAT(near.out, HasSubstr("A  mean 101 in the run, 100 in the reference"));
  const RunResult lost = Compare({"clear.png", "rgb.png", "--json", "out.json"});
  EXPECT_EQ(lost.exit_code, kFailed);
  EXPECT_THAT(lost.out, HasSubstr("the run has no alpha, and counts as opaque"));
  EXPECT_EQ(Json::parse(ReadBytes(Path("out.json")))["pictures"][0]["note"],
            "the run has no alpha, and counts as opaque");
  const RunResult same = Compare({"rgb.png", "opaque.png"});
  EXPECT_EQ(same.exit_code, 0);
  EXPECT_THAT(same.out, HasSubstr("the reference has no alpha, and counts as opaque"));
}

TEST_F(CompareCli, QuietTellsByTheExitCode) {
  Write("run/a.npy", {9, 9, 9});
  const RunResult result = Compare({"ref", "run", "-q"});
  EXPECT_EQ(result.exit_code, kFailed);
  EXPECT_EQ(result.out + result.err, "");
}

TEST_F(CompareCli, ColorsOnATerminalOnly) {
  EXPECT_THAT(Compare({"ref", "run"}).out, Not(HasSubstr("\x1b[")));
  EXPECT_THAT(Compare({"ref", "run", "--color", "always"}).out, HasSubstr("\x1b[32m"));
  const RunOptions terminal = {.environment = {{"NO_COLOR", std::nullopt}},
                               .standard_output = Stream::kTerminal};
  EXPECT_THAT(Compare({"ref", "run"}, terminal).out, HasSubstr("\x1b[32m"));
  const RunOptions no_color = {.environment = {{"NO_COLOR", "1"}}, .standard_output = Stream::kTerminal};
  EXPECT_THAT(Compare({"ref", "run"}, no_color).out, Not(HasSubstr("\x1b[")));
}

TEST_F(CompareCli, JsonAndJUnit) {
  Write("run/a.npy", {1, 2, 4});
  const RunResult result = Compare({"ref", "run", "--json", "out.json", "--junit", "out.xml"});
  EXPECT_EQ(result.exit_code, kFailed);
  const Json json = Json::parse(ReadBytes(Path("out.json")));
  EXPECT_EQ(json["first_divergence"], "a");
  EXPECT_EQ(json["checkpoints"][0]["max_abs"], 1);
  EXPECT_THAT(ReadBytes(Path("out.xml")), HasSubstr("failures=\"1\""));
  const RunResult to_stdout = Compare({"ref", "run", "--json", "-"});
  EXPECT_EQ(Json::parse(to_stdout.out)["passed"], false);
  EXPECT_THAT(to_stdout.err, HasSubstr("first divergence"));
}

TEST_F(CompareCli, AMapBringsNamesTogether) {
  fs::rename(Path("run/b"), Path("run/theirs"));
  EXPECT_EQ(Compare({"ref", "run"}).exit_code, kFailed);
  folder_.Write("map.json", R"({"theirs/*": "b/*"})");
  EXPECT_EQ(Compare({"ref", "run", "--map", "map.json"}).exit_code, 0);
  folder_.Write("map.json", R"({"theirs/step2": "a"})");
  ExpectRefused({"ref", "run", "--map", "map.json"}, kBadInput, "twice");
  folder_.Write("map.json", R"({"theirs/*": "b"})");
  ExpectRefused({"ref", "run", "--map", "map.json"}, kBadInput, "equally many");
}

TEST_F(CompareCli, NamesInAManifestAreNotObeyedByATerminal) {
  const std::string evil = "\x1b[31m\u202e";
  folder_.Write("ref/" + evil + ".npy", ReadBytes(Path("ref/a.npy")));
  for (const Json& entry :
       {Json{{"name", evil}, {"file", evil + ".npy"}}, Json{{"name", "a"}, {"file", evil + "/absent.npy"}},
        Json{{"name", evil}, {"file", evil + ".txt"}}}) {
    folder_.Write("ref/manifest.json", Json{{"checkpoints", {entry}}}.dump());
    const RunResult result = Compare({"ref", "run"});
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.out + result.err, AllOf(HasSubstr("\\x1b[31m\\xe2\\x80\\xae"), Not(HasSubstr("\x1b")),
                                               Not(HasSubstr("\u202e"))));
  }
}

TEST_F(CompareCli, RunsWithOtherSettingsAreRefusedUnlessForced) {
  WriteManifest("ref", {{"prompt", "a cat"}, {"seed", 1}, {"width", 64}});
  WriteManifest("run", {{"prompt", "a dog"}, {"seed", 2}, {"width", 64}});
  ExpectRefused({"ref", "run"}, kUsage, "\"a cat\" and \"a dog\"");
  EXPECT_THAT(Compare({"ref", "run"}).err, AllOf(HasSubstr("seed: 1 and 2"), Not(HasSubstr("width"))));
  const RunResult forced = Compare({"ref", "run", "--force"});
  EXPECT_EQ(forced.exit_code, 0);
  EXPECT_THAT(forced.out, HasSubstr("other settings"));
}

TEST_F(CompareCli, Pictures) {
  Image image{32, 32, std::vector<uint8_t>(32 * 32 * 3, 100)};
  WritePng(Path("a.png"), image, {});
  image.pixels[5] = 150;
  WritePng(Path("b.png"), image, {});
  EXPECT_EQ(Compare({"a.png", "a.png"}).exit_code, 0);
  const RunResult result = Compare({"a.png", "b.png"});
  EXPECT_EQ(result.exit_code, kFailed);
  EXPECT_THAT(result.out, AllOf(HasSubstr("PSNR"), HasSubstr("SSIM"), HasSubstr("largest 50 levels")));
  ExpectRefused({"a.png", "ref"}, kBadInput, "ref");
}

TEST_F(CompareCli, BadInput) {
  ExpectRefused({"absent", "run"}, kBadInput, "absent");
  fs::create_directory(Path("empty"));
  ExpectRefused({"empty", "run"}, kBadInput, "empty holds no tensors");
  ExpectRefused({"ref", "empty"}, kBadInput, "empty holds no tensors");
  folder_.Write("run/broken.npy", ReadBytes(Path("ref/a.npy")).substr(0, 130));
  ExpectRefused({"ref", "run"}, kBadInput, "broken.npy");
  fs::remove(Path("run/broken.npy"));
  folder_.Write("run/broken.npz", "PK");
  ExpectRefused({"ref", "run"}, kBadInput, "broken.npz");
  fs::remove(Path("run/broken.npz"));
  folder_.Write("run/manifest.json", "{");
  ExpectRefused({"ref", "run"}, kBadInput, "manifest.json");
}

TEST_F(CompareCli, WrongUsage) {
  ExpectRefused({"ref"}, kUsage, "run");
  ExpectRefused({"ref", "run", "--atol", "-1"}, kUsage, "--atol");
  ExpectRefused({"ref", "run", "--rtol", "nan"}, kUsage, "--rtol");
  ExpectRefused({"ref", "run", "--only", "zzz"}, kUsage, "--only");
  ExpectRefused({"ref", "run", "--map", ""}, kUsage, "empty");
  ExpectRefused({"ref", "run", "--isolated", "run"}, kUsage, "--substitute");
  const RunResult debug = RunProgram({"--debug", "compare", "ref", "run"}, {.folder = folder_.path()});
  EXPECT_EQ(debug.exit_code, kUsage);
}

TEST_F(CompareCli, OtherShapesFailWithBoth) {
  Write("run/a.npy", {1, 2});
  const RunResult result = Compare({"ref", "run"});
  EXPECT_EQ(result.exit_code, kFailed);
  EXPECT_THAT(result.out, HasSubstr("shape [1, 2], expected [1, 3]"));
}

TEST_F(CompareCli, AFullDiskIsAnErrorAndLeavesNoFile) {
  ExpectRefused({"ref", "run", "--json", "/dev/full"}, kCannotWrite, "/dev/full");
  ExpectRefused({"ref", "run", "--json", "absent/out.json"}, kCannotWrite, "absent");
  ExpectRefused({"ref", "run", "--json", "out.json"}, kCannotWrite, "out.json", {.file_size = 100});
  EXPECT_FALSE(fs::exists(Path("out.json")));
  EXPECT_EQ(Compare({"ref", "run"}, {.standard_output = Stream::kFull}).exit_code, kCannotWrite);
}

// A run of the embedded model against a recording of itself: at the same settings and with others.
TEST_F(CompareCli, RecordedRunsOfTheEngine) {
  const auto record = [&](const std::string& id, const std::string& seed) {
    return RunProgram(
        {"--debug=" + id, "--artifacts=.", "--checkpoints=all", "generate", "a red circle", "--size", "32x32",
         "--steps", "1", "--cfg", "1", "--seed", seed, "-q", "-o", "out.png"},
        {.folder = folder_.path()});
  };
  ASSERT_EQ(record("one", "1").exit_code, 0);
  ASSERT_EQ(record("two", "1").exit_code, 0);
  ASSERT_EQ(record("three", "2").exit_code, 0);
  const RunResult same = Compare({"one/cpp", "two/cpp", "--attribute"});
  EXPECT_EQ(same.exit_code, 0) << same.out;
  EXPECT_THAT(same.out,
              AllOf(HasSubstr("picture (tensor, before the clamp): PSNR inf"), HasSubstr("img FFN down")));
  ExpectRefused({"one/cpp", "three/cpp"}, kUsage, "seed: 1 and 2");
  const RunResult other = Compare({"one/cpp", "three/cpp", "--force"});
  EXPECT_EQ(other.exit_code, kFailed);
  EXPECT_THAT(other.out, HasSubstr("first divergence: initial_latents_packed"));
}

}  // namespace
}  // namespace qwen_image
