// Drawing as users meet it: what is drawn, what is printed.
#include <cmath>

#include "cli_fixture.h"
#include "files/npy.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

// What a run that works does.

TEST_F(Cli, DrawsAPictureAndSaysWhatItDid) {
  const RunResult result =
      Run({"generate", "a red circle", "-o", "circle.png", "--seed", "7", "--steps", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, MatchesRegex("circle\\.png: 128x128, 2 steps, cfg 4, seed 7\n"
                                       "  prompt [0-9.]+ s \\+ denoise [0-9.]+ s \\([0-9.]+ s/step\\) \\+ "
                                       "decode [0-9.]+ s; peak memory [0-9]+ MB\n"));
  EXPECT_THAT(Files(), ElementsAre("circle.png"));
  const Image image = ReadPng(Path("circle.png"));
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
  const Image first = Draw(kQuick + Arguments{"a star"});
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
  const Image image = Draw({"x", "--steps", "1", "--size", "160x96"});
  EXPECT_EQ(image.width, 160);
  EXPECT_EQ(image.height, 96);
  for (const Arguments& size : {Arguments{"-s", "160X96"}, Arguments{"--width", "160", "--height", "96"},
                                Arguments{"--size=160x96"}}) {
    EXPECT_EQ(Draw(Arguments{"x", "--steps", "1"} + size).pixels, image.pixels);
  }
  const Image wide = Draw({"x", "--steps", "1", "--width", "160"});
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
    EXPECT_GT(json.at("peak_memory_bytes").get<int64_t>(), 1 << 20);
    for (const char* stage : {"load", "encode_prompt", "denoise", "per_step", "decode"})
      EXPECT_GT(json.at("seconds").at(stage).get<double>(), 0) << stage;
    EXPECT_EQ(json.at("seconds").contains("start_to_first_step"), i == 0);
  }
}

TEST_F(Cli, ARandomSeedIsReported) {
  const Json first = Describe(kQuick + Arguments{"x", "--seed", "random"});
  const Image image = ReadPng(Path("drawn.png"));
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
  const Image guided = Draw(request + Arguments{"--cfg", "4"});
  EXPECT_EQ(Draw(request).pixels, guided.pixels) << "4 is this model's default";
  const Image plain = Draw(request + Arguments{"--cfg", "1"});
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
  const Image image = Draw(request + Arguments{"plain.npy"});
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

}  // namespace
}  // namespace qwen_image
