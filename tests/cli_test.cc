// The program as its users meet it: what it draws, what it prints, how it fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
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
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

using Arguments = std::vector<std::string>;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // sanitizers reserve terabytes of addresses: no limit on them is possible
#else
constexpr bool kSanitized = false;
#endif

constexpr int kUsage = 2, kBadInput = 3, kOutOfMemory = 4, kCannotWrite = 5, kInterrupted = 130;

const Arguments kQuick = {"--size", "64x48", "--steps", "2"};

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<std::string> Lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

class Cli : public testing::Test {
 protected:
  RunResult Run(const Arguments& arguments, RunOptions options = {}) const {
    options.folder = folder_.path();
    return RunProgram(arguments, options);
  }

  // Draws one picture and takes it out of the folder.
  RgbImage Draw(const Arguments& arguments) const {
    const RunResult result = Run(Arguments{"generate"} + arguments + Arguments{"-q", "-o", "drawn.png"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    RgbImage image;
    if (result.exit_code == 0) image = ReadPng(Path("drawn.png"));
    fs::remove(Path("drawn.png"));
    return image;
  }

  // Draws one picture and returns what --json says about it.
  Json Describe(const Arguments& arguments) const {
    const RunResult result =
        Run(Arguments{"generate"} + arguments + Arguments{"-q", "--json", "-o", "drawn.png"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out, nullptr, false);
  }

  // A refusal: this exit code, a message of so many lines, and no trace of a picture.
  void ExpectRefused(const Arguments& arguments, int exit_code, const std::string& message,
                     const RunOptions& options = {}, size_t max_lines = 1) const {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const std::set<std::string> before = Files();
    const RunResult result = Run(arguments, options);
    EXPECT_EQ(result.exit_code, exit_code);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, AllOf(StartsWith("qwen-image: "), HasSubstr(message), EndsWith("\n")));
    EXPECT_LE(Lines(result.err).size(), max_lines) << result.err;
    EXPECT_EQ(Files(), before);
  }
  void ExpectModelRefused(const ModelCopy& model, const std::string& message, size_t max_lines = 1) const {
    ExpectRefused({"generate", "x", "-m", model.path().string()}, kBadInput, message, {}, max_lines);
  }

  std::set<std::string> Files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      names.insert(entry.path().filename().string());
    return names;
  }
  fs::path Path(const std::string& name) const { return folder_.path() / name; }

  const TempFolder folder_;
};

// What a run that works does.

TEST_F(Cli, DrawsAPictureAndSaysWhatItDid) {
  const RunResult result =
      Run({"generate", "a red circle", "-o", "circle.png", "--seed", "7", "--steps", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, MatchesRegex("circle\\.png: 128x128, 2 steps, cfg 4, seed 7\n"
                                       "  prompt [0-9.]+ s \\+ denoise [0-9.]+ s \\([0-9.]+ s/step\\) \\+ "
                                       "decode [0-9.]+ s; peak memory [0-9]+ MB\n"));
  EXPECT_THAT(Files(), ElementsAre("circle.png"));
  const RgbImage image = ReadPng(Path("circle.png"));
  EXPECT_EQ(image.width, 128);
  EXPECT_EQ(image.height, 128);
  EXPECT_GT(std::set<uint8_t>(image.pixels.begin(), image.pixels.end()).size(), 10u) << "one flat colour";
}

TEST_F(Cli, NamesThePictureByDateWithoutAnOutput) {
  for (int i = 0; i < 3; ++i) ASSERT_EQ(Run(Arguments{"generate", "x", "-q"} + kQuick).exit_code, 0);
  EXPECT_EQ(Files().size(), 3u) << "a picture was overwritten";
  EXPECT_THAT(Files(), Each(MatchesRegex("picture-[0-9]{8}-[0-9]{6}(-[0-9])?\\.png")));
}

TEST_F(Cli, RepeatsAPictureBitForBit) {
  const RgbImage first = Draw(kQuick + Arguments{"a star"});
  EXPECT_EQ(Draw(kQuick + Arguments{"a star"}).pixels, first.pixels);
  EXPECT_EQ(Draw(kQuick + Arguments{"--prompt", "a star"}).pixels, first.pixels);
  EXPECT_EQ(Draw(kQuick + Arguments{"a star", "--seed", "0"}).pixels, first.pixels);
  EXPECT_NE(Draw(kQuick + Arguments{"a star", "--seed", "1"}).pixels, first.pixels);
  EXPECT_NE(Draw(kQuick + Arguments{"a ring"}).pixels, first.pixels);
}

TEST_F(Cli, DrawsTheSameWithAnyNumberOfThreads) {
  const Arguments request = {"a star", "--size", "160x96", "--steps", "2", "--threads"};
  EXPECT_EQ(Draw(request + Arguments{"1"}).pixels, Draw(request + Arguments{"3"}).pixels);
}

TEST_F(Cli, TakesTheSizeInSeveralSpellings) {
  const RgbImage image = Draw({"x", "--steps", "1", "--size", "160x96"});
  EXPECT_EQ(image.width, 160);
  EXPECT_EQ(image.height, 96);
  for (const Arguments& size : {Arguments{"-s", "160X96"}, Arguments{"--width", "160", "--height", "96"},
                                Arguments{"--size=160x96"}}) {
    EXPECT_EQ(Draw(Arguments{"x", "--steps", "1"} + size).pixels, image.pixels);
  }
  const RgbImage wide = Draw({"x", "--steps", "1", "--width", "160"});
  EXPECT_EQ(wide.width, 160);
  EXPECT_EQ(wide.height, 128) << "the model's own";
}

TEST_F(Cli, TakesAnyPromptLiterally) {
  for (const char* prompt : {"", "[a cat]", "[]", "a,b", "\"quoted\"", "{}", "%s", "a\\nb", "two\nlines",
                             "generate", "-x", "--help", "ein Bär 🐻"}) {
    SCOPED_TRACE(prompt);
    EXPECT_EQ(Describe(kQuick + Arguments{"--prompt", prompt}).value("prompt", "?"), prompt);
  }
}

TEST_F(Cli, CountsUpSeedsAndNames) {
  const Arguments request = kQuick + Arguments{"a star"};
  ASSERT_EQ(
      Run(Arguments{"generate"} + request + Arguments{"-q", "-o", "out.png", "--count", "3", "--seed", "41"})
          .exit_code,
      0);
  EXPECT_THAT(Files(), ElementsAre("out-001.png", "out-002.png", "out-003.png"));
  EXPECT_EQ(ReadPng(Path("out-002.png")).pixels, Draw(request + Arguments{"--seed", "42"}).pixels);
  EXPECT_NE(ReadPng(Path("out-002.png")).pixels, ReadPng(Path("out-001.png")).pixels);
}

TEST_F(Cli, DrawsAPictureForEveryLineOfAFile) {
  folder_.Write("prompts.txt", "\uFEFFa red circle\r\n\r\n  \t\r\na blue square\r\na ring without a newline");
  const RunResult result = Run(Arguments{"generate", "--prompts", "prompts.txt", "-o", "batch.png"} + kQuick);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(Files(), ElementsAre("batch-001.png", "batch-002.png", "batch-003.png", "prompts.txt"));
  EXPECT_THAT(result.out, AllOf(HasSubstr("batch-001.png: "), HasSubstr("batch-003.png: ")));
  EXPECT_THAT(result.err, AllOf(HasSubstr("[1/3] step "), HasSubstr("[3/3] step ")));
  EXPECT_EQ(ReadPng(Path("batch-001.png")).pixels, Draw(kQuick + Arguments{"a red circle"}).pixels);
  EXPECT_EQ(ReadPng(Path("batch-002.png")).pixels, Draw(kQuick + Arguments{"a blue square"}).pixels);
  EXPECT_EQ(ReadPng(Path("batch-003.png")).pixels,
            Draw(kQuick + Arguments{"a ring without a newline"}).pixels);
}

TEST_F(Cli, QuietPrintsNothing) {
  const RunResult result = Run(Arguments{"generate", "x", "--quiet", "-o", "out.png"} + kQuick);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out + result.err, "");
}

TEST_F(Cli, JsonPrintsOneObjectPerPicture) {
  const RunResult result = Run(Arguments{"generate", "a \"red\" circle", "--json", "-o", "out.png", "--seed",
                                         "18446744073709551614", "--count", "2", "--threads", "2"} +
                               kQuick);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<std::string> lines = Lines(result.out);
  ASSERT_EQ(lines.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const Json json = Json::parse(lines[i]);
    EXPECT_EQ(json.at("file"), i == 0 ? "out-001.png" : "out-002.png");
    EXPECT_EQ(json.at("prompt"), "a \"red\" circle");
    EXPECT_EQ(json.at("seed").get<uint64_t>(), 18446744073709551614u + i);
    EXPECT_EQ(json.at("steps"), 2);
    EXPECT_EQ(json.at("width"), 64);
    EXPECT_EQ(json.at("height"), 48);
    EXPECT_EQ(json.at("cfg"), 4.0);
    EXPECT_EQ(json.at("threads"), 2);
    EXPECT_GT(json.at("peak_memory_mb").get<double>(), 1);
    for (const char* stage : {"load", "encode_prompt", "denoise", "decode"})
      EXPECT_GT(json.at("seconds").at(stage).get<double>(), 0) << stage;
  }
}

TEST_F(Cli, ARandomSeedIsReported) {
  const Json first = Describe(kQuick + Arguments{"x", "--seed", "random"});
  const RgbImage image = ReadPng(Path("drawn.png"));
  EXPECT_NE(Describe(kQuick + Arguments{"x", "--seed", "random"}).at("seed"), first.at("seed"));
  EXPECT_EQ(Draw(kQuick + Arguments{"x", "--seed", first.at("seed").dump()}).pixels, image.pixels);
}

TEST_F(Cli, ATruncatedPromptIsNoted) {
  const RunResult result =
      Run(Arguments{"generate", "a red circle", "--max-sequence-length", "2", "-o", "out.png"} + kQuick);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("the end was cut off"));
}

TEST_F(Cli, HelpAndVersion) {
  RunResult result = Run({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, MatchesRegex("qwen-image [0-9]+\\.[0-9]+\\.[0-9]+ .*\n"));
  result = Run({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("Example"), HasSubstr("generate"), HasSubstr("Exit codes")));
  result = Run({"generate", "--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("Examples:"), HasSubstr("--negative-prompt"), HasSubstr("--seed")));
  EXPECT_EQ(result.err, "");
}

TEST_F(Cli, ProgressIsLinesWithoutATerminal) {
  const RunResult result = Run(Arguments{"generate", "x", "-o", "out.png"} + kQuick);
  const std::vector<std::string> lines = Lines(result.err);
  ASSERT_GE(lines.size(), 4u) << result.err;
  EXPECT_EQ(lines.front(), "encoding the prompt");
  EXPECT_THAT(lines.back(), StartsWith("decoding the picture"));  // a slow machine adds how much is done
  EXPECT_THAT(result.err, AllOf(HasSubstr("\nstep 0/2\n"), HasSubstr("\nstep 2/2, ")));
  EXPECT_THAT(result.err, AllOf(Not(HasSubstr("\r")), Not(HasSubstr("\x1b"))));
}

TEST_F(Cli, ProgressIsABarOnATerminal) {
  const RunResult result = Run(Arguments{"generate", "x", "-o", "out.png", "--size", "64x48", "--steps", "3"},
                               {.standard_error = Stream::kTerminal});
  EXPECT_EQ(result.exit_code, 0);
  const std::string redraw = "\r\x1b[2K";
  EXPECT_THAT(result.err, AllOf(StartsWith(redraw), EndsWith(redraw), HasSubstr("█"), HasSubstr("░")));
  for (const char* step : {"step 0/3", "step 1/3", "step 2/3", "step 3/3"})
    EXPECT_THAT(result.err, HasSubstr(step));
  EXPECT_THAT(result.err, Not(HasSubstr("\n")));
  EXPECT_THAT(result.out, StartsWith("out.png: ")) << "the summary goes to stdout all the same";
}

TEST_F(Cli, FindsTheModel) {
  const ModelCopy model(Path("other"));
  model.Edit("qwen_image.json", "\"steps\": 20", "\"steps\": 3");
  const Arguments request = {"generate", "x", "--size", "32x32", "--json", "-q", "-o", "out.png"};
  const auto steps = [&](const Arguments& arguments, const RunOptions& options) {
    const RunResult result = Run(arguments, options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out, nullptr, false).value("steps", 0);
  };
  const RunOptions by_variable = {.environment = {{"QWEN_IMAGE_MODEL", "other"}}};
  EXPECT_EQ(steps(request, by_variable), 3);
  EXPECT_EQ(
      steps(request + Arguments{"--model", std::string(QWEN_IMAGE_SOURCE_DIR) + "/models/tiny"}, by_variable),
      20);

  // As `cmake --install` lays it out: bin/qwen-image and share/qwen-image/models/tiny.
  fs::create_directory(Path("bin"));
  fs::copy_file(QWEN_IMAGE_PROGRAM, Path("bin/qwen-image"));
  const RunOptions installed = {.program = Path("bin/qwen-image"),
                                .environment = {{"QWEN_IMAGE_MODEL", std::nullopt}}};
  ExpectRefused(request, kBadInput, "--model FOLDER", installed);
  fs::create_directories(Path("share/qwen-image/models"));
  fs::create_symlink(Path("other"), Path("share/qwen-image/models/tiny"));
  EXPECT_EQ(steps(request, installed), 3);
}

// Guidance and control tokens.

TEST_F(Cli, GuidanceAndNegativePromptMatter) {
  const Arguments request = kQuick + Arguments{"a star"};
  const RgbImage guided = Draw(request + Arguments{"--cfg", "4"});
  EXPECT_EQ(Draw(request).pixels, guided.pixels) << "4 is this model's default";
  const RgbImage plain = Draw(request + Arguments{"--cfg", "1"});
  EXPECT_NE(plain.pixels, guided.pixels);
  const Arguments negative = {"--negative-prompt", "a blue circle"};
  EXPECT_NE(Draw(request + negative).pixels, guided.pixels);
  EXPECT_EQ(Draw(request + negative + Arguments{"--cfg", "1"}).pixels, plain.pixels);
}

TEST_F(Cli, ControlTokensInAPromptAreTextUnlessAskedFor) {
  const Arguments request = kQuick + Arguments{"<|im_start|>a star"};
  EXPECT_NE(Draw(request).pixels, Draw(request + Arguments{"--reference-special-tokens"}).pixels);
}

// Initial noise from a file.

TEST_F(Cli, DrawsFromGivenLatents) {
  constexpr int64_t kSide = 8, kChannels = 16;  // 128x128 pixels
  std::vector<float> plain(kChannels * 4 * kSide * kSide), packed(plain.size());
  for (size_t i = 0; i < plain.size(); ++i) plain[i] = std::sin(static_cast<float>(7 * i * i % 1009));
  for (int64_t c = 0; c < kChannels; ++c) {
    for (int64_t y = 0; y < 2 * kSide; ++y) {
      for (int64_t x = 0; x < 2 * kSide; ++x) {
        const int64_t token = y / 2 * kSide + x / 2, channel = c * 4 + y % 2 * 2 + x % 2;
        packed[static_cast<size_t>(token * 4 * kChannels + channel)] =
            plain[static_cast<size_t>((c * 2 * kSide + y) * 2 * kSide + x)];
      }
    }
  }
  WriteNpy(Path("plain.npy"), plain.data(), {1, 1, 16, 16, 16});
  WriteNpy(Path("packed.npy"), packed.data(), {1, 64, 64});
  const Arguments request = {"x", "--steps", "2", "--latents"};
  const RgbImage image = Draw(request + Arguments{"plain.npy"});
  EXPECT_EQ(image.width, 128);
  EXPECT_EQ(Draw(request + Arguments{"packed.npy"}).pixels, image.pixels);
  EXPECT_NE(Draw({"x", "--steps", "2"}).pixels, image.pixels);
}

TEST_F(Cli, RefusesUnfitLatents) {
  const std::vector<float> zeros(65 * 64);
  WriteNpy(Path("wrong.npy"), zeros.data(), {1, 65, 64});
  WriteNpy(Path("good.npy"), zeros.data(), {1, 64, 64});
  const std::vector<int64_t> integers(64 * 64);
  WriteNpy(Path("integers.npy"), integers.data(), {1, 64, 64});
  const std::vector<float> nan(64 * 64, NAN);
  WriteNpy(Path("nan.npy"), nan.data(), {1, 64, 64});
  folder_.Write("cut.npy", ReadBytes(Path("good.npy")).substr(0, 1000));
  folder_.Write("text.npy", "no array");
  const Arguments request = {"generate", "x", "--latents"};
  ExpectRefused(request + Arguments{"wrong.npy"}, kUsage, "[1, 65, 64]");
  ExpectRefused(request + Arguments{"good.npy", "--size", "64x64"}, kUsage, "[1, 16, 64]");
  ExpectRefused(request + Arguments{"good.npy", "--count", "2"}, kUsage, "--latents replaces the seed");
  ExpectRefused(request + Arguments{"integers.npy"}, kBadInput, "integers.npy");
  ExpectRefused(request + Arguments{"nan.npy"}, kBadInput, "NaN");
  ExpectRefused(request + Arguments{"cut.npy"}, kBadInput, "cut.npy");
  ExpectRefused(request + Arguments{"text.npy"}, kBadInput, "text.npy");
  ExpectRefused(request + Arguments{"absent.npy"}, kBadInput, "absent.npy");
  ExpectRefused(request + Arguments{"/dev/zero"}, kBadInput, "/dev/zero");
}

// The settings in a picture's metadata.

TEST_F(Cli, DrawsAPictureAgainFromItsMetadata) {
  const Arguments request = {"<|im_start|>ein \"roter\" Kreis, 红色\n",
                             "--negative-prompt",
                             "blur",
                             "--size",
                             "96x64",
                             "--steps",
                             "3",
                             "--cfg",
                             "2.5",
                             "--seed",
                             "18446744073709551615",
                             "--max-sequence-length",
                             "7",
                             "--vae-tiling",
                             "on",
                             "--reference-special-tokens"};
  ASSERT_EQ(Run(Arguments{"generate", "-q", "-o", "first.png"} + request).exit_code, 0);
  ASSERT_EQ(Run({"generate", "-q", "-o", "again.png", "--from", "first.png"}).exit_code, 0);
  EXPECT_EQ(ReadPng(Path("again.png")).pixels, ReadPng(Path("first.png")).pixels);
  EXPECT_EQ(ReadPngText(Path("again.png")), ReadPngText(Path("first.png")));
}

TEST_F(Cli, OptionsOverrideTheMetadata) {
  ASSERT_EQ(Run(Arguments{"generate", "a star", "-q", "-o", "first.png", "--vae-tiling", "on",
                          "--max-sequence-length", "100", "--seed", "5"} +
                kQuick)
                .exit_code,
            0);
  const std::pair<Arguments, Json> cases[] = {
      {{"--prompt", ""}, {{"prompt", ""}}},
      {{"--negative-prompt", ""}, {{"negative_prompt", ""}}},
      {{"--size", "32x64"}, {{"width", 32}, {"height", 64}}},
      {{"--width", "32"}, {{"width", 32}, {"height", 48}}},
      {{"--steps", "1"}, {{"steps", 1}}},
      {{"--cfg", "1"}, {{"cfg", 1.0}}},
      {{"--seed", "0"}, {{"seed", 0}}},
      {{"--max-sequence-length", "9"}, {{"max_sequence_length", 9}}},
      {{"--vae-tiling", "off"}, {{"vae_tiling", "off"}}},
      {{"--vae-tiling", "auto"}, {{"vae_tiling", "auto"}}},
      {{"--reference-special-tokens"}, {{"reference_special_tokens", true}}}};
  const Json first = Describe({"--from", "first.png"});
  EXPECT_EQ(first.at("seed"), 5);
  for (const auto& [arguments, changes] : cases) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    Json expected = first, found = Describe(Arguments{"--from", "first.png"} + arguments);
    expected.update(changes);
    for (const char* key :
         {"seconds", "peak_memory_mb", "prompt_tokens", "prompt_truncated"}) {  // no settings
      expected.erase(key);
      found.erase(key);
    }
    EXPECT_EQ(found, expected);
  }
  EXPECT_EQ(Draw({"--from", "first.png", "--seed", "9"}).pixels,
            Draw(kQuick + Arguments{"a star", "--seed", "9"}).pixels);

  folder_.Write("prompts.txt", "a ring\n");
  EXPECT_EQ(Draw({"--from", "first.png", "--prompts", "prompts.txt"}).pixels,
            Draw(kQuick + Arguments{"a ring", "--seed", "5"}).pixels);
}

TEST_F(Cli, APictureFromGivenLatentsNeedsThemAgain) {
  const std::vector<float> zeros(12 * 64);
  WriteNpy(Path("noise.npy"), zeros.data(), {1, 12, 64});
  ASSERT_EQ(
      Run(Arguments{"generate", "x", "-q", "--latents", "noise.npy", "-o", "first.png"} + kQuick).exit_code,
      0);
  ExpectRefused({"generate", "--from", "first.png"}, kUsage, "noise.npy");
  EXPECT_EQ(Draw({"--from", "first.png", "--latents", "noise.npy"}).pixels,
            ReadPng(Path("first.png")).pixels);
}

TEST_F(Cli, RefusesPicturesWithoutUsableSettings) {
  const RgbImage dot{1, 1, {1, 2, 3}};
  WritePng(Path("foreign.png"), dot, {{"Software", "another"}});
  folder_.Write("text.png", "no picture");
  folder_.Write("cut.png", ReadBytes(Path("foreign.png")).substr(0, 40));
  ExpectRefused({"generate", "--from", "foreign.png"}, kBadInput, "foreign.png: the picture carries no");
  ExpectRefused({"generate", "--from", "text.png"}, kBadInput, "text.png is not a PNG");
  ExpectRefused({"generate", "--from", "cut.png"}, kBadInput, "cut.png");
  ExpectRefused({"generate", "--from", "absent.png"}, kBadInput, "absent.png");
  ExpectRefused({"generate", "--from", "."}, kBadInput, ".");
}

TEST_F(Cli, APictureOfAnotherModelNeedsThatModel) {
  const ModelCopy other(Path("other"));
  const std::string model = other.path().string();
  Run(Arguments{"generate", "x", "-q", "-m", model, "-o", "other.png"} + kQuick);
  ExpectRefused({"generate", "--from", "other.png"}, kUsage,
                "\"" + other.path().filename().string() + "\"; say where it is");
  EXPECT_EQ(Draw({"--from", "other.png", "-m", model}).pixels, ReadPng(Path("other.png")).pixels);
}

TEST_F(Cli, RefusesHostileSettings) {
  const Json good = {{"prompt", "x"}, {"width", 32}, {"height", 32}, {"steps", 1}, {"cfg", 4.0}, {"seed", 1}};
  const RgbImage dot{1, 1, {1, 2, 3}};
  const auto expect_refused = [&](const std::string& settings, int exit_code, const std::string& message) {
    SCOPED_TRACE(settings.substr(0, 100));
    WritePng(Path("hostile.png"), dot, {{"qwen-image", settings}});
    ExpectRefused({"generate", "--from", "hostile.png"}, exit_code, message);
  };
  WritePng(Path("good.png"), dot, {{"qwen-image", good.dump()}});
  EXPECT_EQ(Draw({"--from", "good.png"}).width, 32) << "the base of all cases works";

  expect_refused("{\"prompt\": ", kBadInput, "hostile.png: settings");
  expect_refused("", kBadInput, "hostile.png: settings");
  expect_refused("[]", kBadInput, "hostile.png: settings");
  expect_refused("null", kBadInput, "hostile.png: settings");
  expect_refused("{\"cfg\": NaN}", kBadInput, "hostile.png: settings");
  expect_refused(std::string(100000, '['), kBadInput, "hostile.png: settings");
  const std::tuple<const char*, Json, int> cases[] = {{"prompt", 5, kBadInput},
                                                      {"negative_prompt", Json::array(), kBadInput},
                                                      {"width", "32", kBadInput},
                                                      {"width", -32, kBadInput},
                                                      {"width", 1e300, kBadInput},
                                                      {"width", 33, kUsage},
                                                      {"height", 1'000'000, kUsage},
                                                      {"height", nullptr, kBadInput},
                                                      {"steps", 1'000'000'000, kUsage},
                                                      {"steps", 0, kBadInput},
                                                      {"steps", 2.5, kBadInput},
                                                      {"steps", UINT64_MAX, kBadInput},
                                                      {"cfg", "4", kBadInput},
                                                      {"cfg", -1, kUsage},
                                                      {"cfg", 1e300, kUsage},
                                                      {"seed", -1, kBadInput},
                                                      {"seed", "1", kBadInput},
                                                      {"seed", 1.5, kBadInput},
                                                      {"max_sequence_length", 0, kBadInput},
                                                      {"max_sequence_length", 100000, kUsage},
                                                      {"reference_special_tokens", "yes", kBadInput},
                                                      {"vae_tiling", "sideways", kBadInput},
                                                      {"vae_tiling", 1, kBadInput},
                                                      {"latents", "\x1b[31m\n/etc/passwd", kUsage},
                                                      {"latents", 1, kBadInput}};
  for (const auto& [key, value, exit_code] : cases) {
    Json bad = good;
    bad[key] = value;
    expect_refused(bad.dump(), exit_code, "");
  }
  for (const char* key : {"prompt", "width", "height", "steps", "cfg", "seed"}) {
    Json bad = good;
    bad.erase(key);
    expect_refused(bad.dump(), kBadInput, key);
  }
}

// Wrong usage.

TEST_F(Cli, RefusesImpossibleRequests) {
  const std::pair<Arguments, const char*> cases[] = {
      {{"--size", "100x100"}, "nearest valid size is 96x96"},
      {{"--size", "0x0"}, "nearest valid size is 16x16"},
      {{"--size", "7"}, "\"7\" is not a size"},
      {{"--size", "axb"}, "\"axb\" is not a size"},
      {{"--size", "64x"}, "is not a size"},
      {{"--size", "64x64x64"}, "is not a size"},
      {{"--size", "1000000x1000000"}, "nearest valid size is 8192x8192"},
      {{"--size", "99999999999999999999x16"}, "is not a size"},
      {{"--size", "-16x16"}, "\"-16x16\" is not a size"},
      {{"--width", "-16"}, "nearest valid size is 16x128"},
      {{"--height", "abc"}, "--height"},
      {{"--size", "64x64", "--width", "64"}, "not both"},
      {{"--steps", "0"}, "steps must be from 1 to 1000, not 0"},
      {{"--steps", "-1"}, "not -1"},
      {{"--steps", "1000000000"}, "not 1000000000"},
      {{"--steps", "abc"}, "--steps"},
      {{"--steps", "2.5"}, "--steps"},
      {{"--cfg", "nan"}, "cfg must be a number"},
      {{"--cfg", "inf"}, "cfg must be a number"},
      {{"--cfg", "-1"}, "cfg must be a number"},
      {{"--cfg", "1e30"}, "cfg must be a number"},
      {{"--cfg", "abc"}, "--cfg"},
      {{"--seed", "abc"}, "\"abc\" is not a seed"},
      {{"--seed", "18446744073709551616"}, "is not a seed"},
      {{"--seed", "1.5"}, "is not a seed"},
      {{"--count", "0"}, "--count"},
      {{"--count", "-1"}, "--count"},
      {{"--count", "1000000000"}, "--count"},
      {{"--threads", "0"}, "--threads"},
      {{"--threads", "1000000"}, "--threads"},
      {{"--max-sequence-length", "0"}, "maximum sequence length"},
      {{"--max-sequence-length", "1000000"}, "maximum sequence length"},
      {{"--vae-tiling", "maybe"}, "--vae-tiling"},
      {{"-o", "out.jpg"}, "out.jpg: pictures are written as PNG"},
      {{"--negative-prompt", "\xff"}, "the negative prompt is not valid UTF-8: \"\\xff\""},
      {{"--prompt", "y"}, "prompt"},
      {{"y"}, "y"},
      {{"--bogus"}, "--bogus"},
      {{"--steps"}, "--steps"},
      {{"--bo\x1b[31m\ngus"}, "--bo\\x1b[31m\\x0agus"}};
  for (const auto& [arguments, message] : cases)
    ExpectRefused(Arguments{"generate", "x"} + arguments, kUsage, message);
}

TEST_F(Cli, RefusesNumbersThatMightBeOctal) {
  for (const char* option : {"--steps", "--width", "--count", "--threads"})
    ExpectRefused({"generate", "x", option, "010"}, kUsage, "without a leading zero");
}

TEST_F(Cli, APictureOnStandardOutputIsNothingElse) {
  const RunResult result = Run(Arguments{"generate", "x"} + kQuick + Arguments{"-o", "/dev/stdout"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("\x89PNG"));
  EXPECT_THAT(result.out, EndsWith("\xae\x42\x60\x82")) << "the last bytes of every PNG";
  EXPECT_THAT(result.err, HasSubstr("64x48, 2 steps"));
  ExpectRefused(Arguments{"generate", "x"} + kQuick + Arguments{"-o", "/dev/stdout", "--json"}, kUsage,
                "cannot both go to stdout");
}

TEST_F(Cli, RefusesEmptyValues) {
  for (const char* option :
       {"--size", "--width", "--height", "--steps", "--cfg", "--seed", "--count", "--threads", "--output",
        "--model", "--from", "--prompts", "--latents", "--max-sequence-length", "--vae-tiling"}) {
    ExpectRefused({"generate", "x", option, ""}, kUsage, std::string(option) + ":");
  }
}

TEST_F(Cli, RefusesWrongCommands) {
  ExpectRefused({}, kUsage, "a command is missing");
  ExpectRefused({"generate"}, kUsage, "nothing to draw");
  ExpectRefused({"draw", "x"}, kUsage, "there is no command \"draw\"");
  ExpectRefused({"--bogus"}, kUsage, "--bogus");
  ExpectRefused({"generate", "\xff\xfe"}, kUsage, "the prompt is not valid UTF-8: \"\\xff\\xfe\"");
  ExpectRefused({"--debug=../x", "generate", "x"}, kUsage, "is not a run id");
}

TEST_F(Cli, RefusesUnusableListsOfPrompts) {
  folder_.Write("latin1.txt", "a circle\n\nein B\xe4r\n");
  folder_.Write("empty.txt", "\n \r\n\t\n");
  folder_.Write("one.txt", "a star\n");
  std::string many;
  for (int i = 0; i < 6000; ++i) many += "x\n";
  folder_.Write("many.txt", many);
  const Arguments request = {"generate", "-o", "out.png", "--prompts"};
  ExpectRefused(request + Arguments{"latin1.txt"}, kBadInput, "latin1.txt, line 3: not valid UTF-8");
  ExpectRefused(request + Arguments{"empty.txt"}, kBadInput, "empty.txt holds no prompt");
  ExpectRefused(request + Arguments{"absent.txt"}, kBadInput, "cannot read absent.txt");
  ExpectRefused(request + Arguments{"."}, kBadInput, "cannot read .");
  ExpectRefused(request + Arguments{"/dev/zero"}, kBadInput, "/dev/zero is too large");
  ExpectRefused(request + Arguments{"one.txt", "x"}, kUsage, "not both");
  ExpectRefused(request + Arguments{"many.txt", "--count", "2"}, kUsage, "12000 pictures are too many");
}

// Output that cannot be written.

TEST_F(Cli, RefusesAnOutputThatCannotBeWrittenBeforeDrawing) {
  fs::create_directory(Path("folder.png"));
  folder_.Write("file", "");
  const std::pair<std::string, const char*> cases[] = {{"absent/out.png", "the folder absent"},
                                                       {"folder.png", "it is a folder"},
                                                       {".", "it is a folder"},
                                                       {"new/", "new/"},
                                                       {"file/out.png", "file"},
                                                       {std::string(300, 'x') + ".png", "xxx"}};
  for (const auto& [output, message] : cases)
    ExpectRefused({"generate", "x", "-o", output, "--steps", "1000"}, kCannotWrite, message);
  ExpectRefused({"generate", "x", "-o", "absent/out.png", "--count", "3"}, kCannotWrite, "the folder absent");
}

TEST_F(Cli, AFullDiskLeavesNoFile) {
  const Arguments request = Arguments{"generate", "x", "-q"} + kQuick;
  ExpectRefused(request + Arguments{"-o", "/dev/full"}, kCannotWrite, "/dev/full: No space left");
  ExpectRefused(request + Arguments{"-o", "out.png"}, kCannotWrite, "out.png: File too large",
                {.file_size = 1000});
  folder_.Write("out.png", "older");
  ExpectRefused(request + Arguments{"-o", "out.png"}, kCannotWrite, "out.png", {.file_size = 1000});
  EXPECT_EQ(ReadBytes(Path("out.png")), "older") << "a failure must not cost the picture that was there";
}

TEST_F(Cli, NamesThatAreNoUtf8AreNoProblem) {
  const ModelCopy model(Path("model-\xff"));
  const RunResult result = Run(
      Arguments{"generate", "x", "-q", "--json", "-o", "out-\xff.png", "-m", model.path().string()} + kQuick);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out).at("file"), "out-\uFFFD.png");
  EXPECT_TRUE(fs::exists(Path("out-\xff.png")));
}

// Streams nobody listens to.

TEST_F(Cli, ClosedStreamsDoNotCostThePicture) {
  const RgbImage expected = Draw(kQuick + Arguments{"x"});
  for (const Stream stream : {Stream::kClosed, Stream::kBrokenPipe, Stream::kFull}) {
    for (const RunOptions& options :
         {RunOptions{.standard_output = stream}, RunOptions{.standard_error = stream},
          RunOptions{.standard_output = stream, .standard_error = stream}}) {
      for (const Arguments& extra : {Arguments{}, Arguments{"--json"}}) {
        SCOPED_TRACE(static_cast<int>(stream));
        const RunResult result = Run(Arguments{"generate", "x", "-o", "out.png"} + kQuick + extra, options);
        // Whoever asked for JSON is told that it was lost; the picture is there all the same.
        const bool lost = !extra.empty() && options.standard_output == Stream::kFull;
        EXPECT_EQ(result.exit_code, lost ? kCannotWrite : 0) << result.err;
        EXPECT_THAT(Files(), ElementsAre("out.png"));
        ASSERT_TRUE(fs::exists(Path("out.png")));
        EXPECT_EQ(ReadPng(Path("out.png")).pixels, expected.pixels);
        fs::remove(Path("out.png"));
      }
    }
    EXPECT_EQ(Run({"generate", "x", "--steps", "0"}, {.standard_error = stream}).exit_code, kUsage);
  }
}

// Models that are not what they should be.

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

// Memory.

TEST_F(Cli, RefusesAModelThatDoesNotFit) {
  const TempFolder folder;
  const ModelCopy model(folder.path() / "model");
  model.Truncate("transformer/diffusion_pytorch_model.safetensors", int64_t{8} << 40);
  const Arguments request = {"generate", "x", "-m", model.path().string()};
  ExpectRefused(request, kOutOfMemory, "needs 8796.1 GB of memory");
  ExpectRefused(request + Arguments{"--ignore-memory"}, kBadInput, "diffusion_pytorch_model.safetensors");
}

TEST_F(Cli, RefusesWhatALimitOnMemoryForbids) {
  if (kSanitized) GTEST_SKIP() << "not with sanitizers";
  const RunOptions limited = {.address_space = 300'000'000};
  EXPECT_EQ(
      Run(Arguments{"generate", "x", "-q", "-o", "out.png", "--threads", "1"} + kQuick, limited).exit_code, 0)
      << "enough for a small picture";
  fs::remove(Path("out.png"));
  const Arguments large = {"generate", "x",       "--size", "4096x4096", "--vae-tiling",
                           "off",      "--steps", "1",      "--threads", "1"};
  ExpectRefused(large, kOutOfMemory, "a picture of 4096x4096 needs about", limited);
}

TEST_F(Cli, RunsOutOfMemoryInGoodOrder) {
  if (kSanitized) GTEST_SKIP() << "not with sanitizers";
  // Enough to start (libcurl and its many libraries take 25 MB of addresses), but not for what the VAE needs
  // in the end.
  const Arguments request = {"generate", "x", "-q", "--ignore-memory", "--steps", "1", "--threads", "1"};
  const RunOptions limited = {.address_space = 66'000'000};
  EXPECT_EQ(Run(request + Arguments{"--size", "32x32", "-o", "out.png"}, limited).exit_code, 0);
  ExpectRefused(request + Arguments{"--size", "512x512"}, kOutOfMemory, "cannot allocate", limited);
}

TEST_F(Cli, TakesAsManyThreadsAsItGets) {
  if (kSanitized) GTEST_SKIP() << "not with sanitizers";
  // Every thread reserves megabytes of addresses for its stack.
  const RunResult result =
      Run(Arguments{"generate", "x", "-q", "--ignore-memory", "--threads", "1000"} + kQuick,
          {.address_space = 100'000'000});
  EXPECT_TRUE(result.exit_code == 0 || result.exit_code == kOutOfMemory)
      << result.exit_code << ": " << result.err;
}

// Interruption.

TEST_F(Cli, AnInterruptedRunLeavesNothing) {
  for (const int signal : {SIGINT, SIGTERM}) {
    RunningProgram program({"generate", "x", "--steps", "1000", "--size", "512x512", "-o", "out.png"},
                           {.folder = folder_.path()});
    ASSERT_TRUE(program.WaitForError("step 0/1000"));
    program.Signal(signal);
    const RunResult result = program.Finish();
    EXPECT_EQ(result.exit_code, kInterrupted);
    EXPECT_THAT(result.err, EndsWith("qwen-image: interrupted\n"));
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(Files(), IsEmpty());
  }
}

TEST_F(Cli, AnInterruptedBatchKeepsWhatIsDone) {
  RunningProgram program(Arguments{"generate", "x", "--count", "1000", "-o", "out.png"} + kQuick,
                         {.folder = folder_.path()});
  ASSERT_TRUE(program.WaitForError("[2/1000] "));
  program.Signal(SIGINT);
  const RunResult result = program.Finish();
  EXPECT_EQ(result.exit_code, kInterrupted);
  EXPECT_THAT(result.err, EndsWith("qwen-image: interrupted\n"));
  const std::set<std::string> files = Files();
  EXPECT_EQ(files.count("out-001.png"), 1u);
  EXPECT_EQ(files.count("out-1000.png"), 0u);
  for (const std::string& file : files) EXPECT_EQ(ReadPng(Path(file)).width, 64) << file;
}

}  // namespace
}  // namespace qwen_image
