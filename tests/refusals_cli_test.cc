// Wrong usage, and output that cannot be written or that nobody reads.
#include "cli_fixture.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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
      {{"-o", "out.gif"}, "out.gif: pictures are written as PNG, JPEG or WebP"},
      {{"-o", "out.png", "--output-compression", "50"}, "is for JPEG and WebP pictures"},
      {{"-o", "out.jpg", "--output-compression", "101"}, "--output-compression"},
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
  const Image expected = Draw(kQuick + Arguments{"x"});
  for (const Stream stream : {Stream::kClosed, Stream::kBrokenPipe, Stream::kFull}) {
    for (const RunOptions& options :
         {RunOptions{.standard_output = stream}, RunOptions{.standard_error = stream},
          RunOptions{.standard_output = stream, .standard_error = stream}}) {
      for (const Arguments& extra : {Arguments{}, Arguments{"--json"}}) {
        SCOPED_TRACE(static_cast<int>(stream));
        const RunResult result = Run(Arguments{"generate", "x", "-o", "out.png"} + kQuick + extra, options);
        // The user hears that what was said is lost; the picture is there all the same.
        const bool lost = options.standard_output == Stream::kFull;
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

}  // namespace
}  // namespace qwen_image
