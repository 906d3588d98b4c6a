// The settings in a picture's metadata: drawing it again.
#include <cstring>

#include "cli_fixture.h"
#include "files/npy.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

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

TEST_F(Cli, APictureOfAnyFormatIsDrawnAgainFromItsMetadata) {
  const Arguments request = Arguments{"ein \"roter\" Kreis, 红色\n", "--seed", "7"} + kQuick;
  const Image expected = Draw(request);
  for (const std::string name : {"first.jpg", "first.JPEG", "first.webp"}) {
    SCOPED_TRACE(name);
    ASSERT_EQ(Run(Arguments{"generate", "-q", "-o", name, "--output-compression", "100"} + request).exit_code,
              0);
    ASSERT_EQ(Run({"generate", "-q", "-o", "again.png", "--from", name}).exit_code, 0);
    EXPECT_EQ(ReadPng(Path("again.png")).pixels, expected.pixels);
    const bool exact = ReadImage(Path(name)).image.pixels == expected.pixels;
    EXPECT_EQ(exact, name.ends_with("webp")) << "a WebP picture of 100 keeps every pixel";
  }
  ASSERT_EQ(
      Run(Arguments{"generate", "-q", "-o", "few.jpg", "--output-compression", "10"} + request).exit_code, 0);
  EXPECT_LT(fs::file_size(Path("few.jpg")), fs::file_size(Path("first.jpg")));
  ASSERT_EQ(Run(Arguments{"generate", "-q", "-o", "two.webp", "--count", "2"} + request).exit_code, 0);
  EXPECT_TRUE(fs::exists(Path("two-001.webp")) && fs::exists(Path("two-002.webp")));
}

TEST_F(Cli, PicturesSayThatAModelMadeThem) {
  for (const char* name : {"a.png", "a.jpg", "a.webp"}) {
    const Arguments request = Arguments{"generate", "x", "-q", "-o", name} + kQuick;
    ASSERT_EQ(Run(request).exit_code, 0);
    constexpr const char* kMark = "cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia";
    EXPECT_THAT(ReadBytes(Path(name)), HasSubstr(kMark)) << name;
    ASSERT_EQ(Run(request + Arguments{"--no-source-mark"}).exit_code, 0);
    EXPECT_THAT(ReadBytes(Path(name)), Not(HasSubstr("trainedAlgorithmicMedia"))) << name;
    EXPECT_THAT(ReadBytes(Path(name)), HasSubstr("qwen-image")) << "the settings stay";
  }
}

// Scripts write --negative-prompt="$N". What follows is an option, a word, or nothing at all.
TEST_F(Cli, NothingAfterTheEqualsSignIsAnEmptyText) {
  const Json expected = {{"prompt", "a star"}, {"negative_prompt", ""}, {"seed", 5}};
  for (const Arguments& arguments : {Arguments{"a star", "--negative-prompt=", "--seed", "5"},
                                     Arguments{"--seed=5", "--negative-prompt=", "a star"},
                                     Arguments{"a star", "--seed=5", "--negative-prompt="}}) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const Json found = Describe(arguments + kQuick);
    for (const auto& [key, value] : expected.items()) EXPECT_EQ(found.at(key), value) << key;
  }
  EXPECT_EQ(Describe(Arguments{"--prompt=", "--seed=5"} + kQuick).at("prompt"), "");
  // A value is a value, and behind -- nothing is an option.
  EXPECT_EQ(Describe(Arguments{"a star", "--negative-prompt", "--prompt="} + kQuick).at("negative_prompt"),
            "--prompt=");
  const RunResult words =
      Run(Arguments{"generate", "--json", "-q", "-o", "a.png"} + kQuick + Arguments{"--", "--seed="});
  EXPECT_EQ(Json::parse(words.out, nullptr, false).at("prompt"), "--seed=");
  // What must not be empty says so, instead of taking the next word.
  for (const char* option :
       {"--seed=", "--steps=", "--size=", "--output=", "--model=", "--lora=", "--precision="}) {
    const RunResult result = Run(Arguments{"generate", "a star", option, "--cfg=1"} + kQuick);
    EXPECT_EQ(result.exit_code, 2) << option << result.out;
    EXPECT_THAT(result.err, testing::HasSubstr(std::string(option, std::strlen(option) - 1))) << option;
  }
  EXPECT_EQ(Run(Arguments{"--artifacts=", "generate", "a star", "-o", "a.png"} + kQuick).exit_code, 0)
      << "the command was taken for a value";
  EXPECT_EQ(Run(Arguments{"generate", "a star", "--json=", "-o", "a.png"} + kQuick).exit_code, 0)
      << "a flag has no value";
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
         {"seconds", "peak_memory_bytes", "prompt_tokens", "prompt_truncated", "steps_run"}) {  // no settings
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

TEST_F(Cli, SigmasAreTheStepsAndAreRecorded) {
  const Arguments size = {"a star", "--size", "64x48"};
  const Json drawn = Describe(size + Arguments{"--sigmas", "1,0.978453,.25"});
  EXPECT_EQ(drawn.at("steps"), 3);
  EXPECT_EQ(drawn.at("sigmas"), Json({1, 0.978453, 0.25}));
  std::filesystem::rename(Path("drawn.png"), Path("first.png"));
  const auto first = ReadPng(Path("first.png")).pixels;
  EXPECT_NE(Draw(size + Arguments{"--steps", "3"}).pixels, first);
  EXPECT_EQ(Draw({"--from", "first.png"}).pixels, first);
  EXPECT_EQ(Describe({"--from", "first.png"}).at("sigmas"), drawn.at("sigmas"));
  // Who asks for other steps, or other noise levels, gets those.
  EXPECT_EQ(Draw({"--from", "first.png", "--steps", "2"}).pixels,
            Draw(size + Arguments{"--steps", "2"}).pixels);
  EXPECT_EQ(Describe({"--from", "first.png", "--sigmas", "1,0.5"}).at("steps"), 2);
  EXPECT_FALSE(Describe(size + Arguments{"--steps", "2"}).contains("sigmas"));

  ExpectRefused(Arguments{"generate"} + size + Arguments{"--sigmas", "1,0.5", "--steps", "3"}, kUsage,
                "2 sigmas are 2 steps, not 3");
  for (const char* wrong : {"1,,0.5", "a", "1,0.5,", "1;0.5", ",", "1 0.5"})
    ExpectRefused(Arguments{"generate"} + size + Arguments{"--sigmas", wrong}, kUsage,
                  "are not noise levels");
  for (const char* wrong : {"0.5,1", "1,1", "2,1", "1,0", "1,-0.5"})
    ExpectRefused(Arguments{"generate"} + size + Arguments{"--sigmas", wrong}, kUsage,
                  "the sigmas are not valid");
}

TEST_F(Cli, AModelWithoutAlphaHasNoBackground) {
  const Arguments star = Arguments{"a star"} + kQuick;
  const Image plain = Draw(star);
  const RunResult noted =
      Run(Arguments{"generate"} + star + Arguments{"--background", "#102030", "-o", "first.png"});
  EXPECT_EQ(noted.exit_code, 0) << noted.err;
  EXPECT_THAT(noted.err, testing::HasSubstr("note: this model draws no transparent parts"));
  EXPECT_EQ(ReadPng(Path("first.png")).pixels, plain.pixels);
  EXPECT_EQ(ReadPng(Path("first.png"), Transparency::kKept).channels, 3);
  EXPECT_EQ(Describe({"--from", "first.png"}).at("background"), "#102030");
  EXPECT_EQ(Describe({"--from", "first.png", "--background", "white"}).at("background"), "white");
  EXPECT_FALSE(Describe(star).contains("background"));
  ExpectRefused(Arguments{"generate"} + star + Arguments{"--background", "transparent"}, kUsage,
                "this model draws no transparent pictures");
  ExpectRefused(Arguments{"generate"} + star + Arguments{"--background", "pinkish"}, kUsage,
                "\"pinkish\" is not a background; write a colour as #rrggbb or by its name (white,");
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
  const Image dot{1, 1, {1, 2, 3}};
  WritePng(Path("foreign.png"), dot, {{"Software", "another"}});
  folder_.Write("text.png", "no picture");
  folder_.Write("cut.png", ReadBytes(Path("foreign.png")).substr(0, 40));
  ExpectRefused({"generate", "--from", "foreign.png"}, kBadInput, "foreign.png: the picture carries no");
  ExpectRefused({"generate", "--from", "text.png"}, kBadInput, "text.png is not a picture that can be read");
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
  const Image dot{1, 1, {1, 2, 3}};
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
                                                      {"latents", 1, kBadInput},
                                                      {"sigmas", 1, kBadInput},
                                                      {"sigmas", {1, "0.5"}, kBadInput},
                                                      {"sigmas", {0.5, 0.2}, kUsage},
                                                      {"sigmas", {7}, kUsage},
                                                      {"background", 7, kBadInput},
                                                      {"background", "transparent", kUsage},
                                                      {"background", "\x1b[31mred", kUsage}};
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

}  // namespace
}  // namespace qwen_image
