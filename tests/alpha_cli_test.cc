// A model that sees and draws transparent parts, as a user types it: a small random Qwen-Image-2.1.
#include "cli_fixture.h"
#include "files/colour.h"

namespace qwen_image {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class AlphaCli : public Cli {
 protected:
  static inline const std::string kModel = QWEN_IMAGE_SOURCE_DIR "/tests/goldens/models/21-micro";
  static inline const Arguments kSmall = {"-m", kModel, "--size", "64x32", "--steps", "2"};

  Image Read(const std::string& name) const { return ReadPng(Path(name), Transparency::kKept); }
  // Runs a command that must work; returns its messages.
  std::string Do(const Arguments& arguments) const {
    const RunResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  }
  // Colours everywhere, and alpha from clear to opaque.
  void WriteSlope(const std::string& name, int64_t width, int64_t height) const {
    Image image{width, height, {}, 4};
    for (int64_t i = 0; i < width * height; ++i) {
      for (const int64_t value : {5 * i, 255 - i, 40 * (i / width), 255 * (i % width) / (width - 1)})
        image.pixels.push_back(static_cast<uint8_t>(value));
    }
    WritePng(Path(name), image);
  }
};

TEST_F(AlphaCli, DrawsItAndLaysItOnAColour) {
  Do(Arguments{"generate", "a ghost", "-o", "clear.png"} + kSmall);
  const Image clear = Read("clear.png");
  ASSERT_EQ(clear.channels, 4);
  EXPECT_EQ(clear.width, 64);
  EXPECT_NE(Flatten(clear).pixels, Flatten(clear, {0, 0, 0}).pixels) << "nothing is transparent";
  const std::string notes =
      Do(Arguments{"generate", "a ghost", "--background", "#102030", "-o", "flat.png"} + kSmall);
  EXPECT_THAT(notes, Not(HasSubstr("note: ")));
  EXPECT_EQ(Read("flat.png").channels, 3);
  EXPECT_EQ(Read("flat.png").pixels, Flatten(clear, {0x10, 0x20, 0x30}).pixels);
  // Drawn again from the settings in either.
  Do({"generate", "--from", "flat.png", "-m", kModel, "-o", "again.png"});
  EXPECT_EQ(Read("again.png").pixels, Read("flat.png").pixels);
  Do({"generate", "--from", "flat.png", "-m", kModel, "--background", "transparent", "-o", "again.png"});
  EXPECT_EQ(Read("again.png").pixels, clear.pixels);
  EXPECT_EQ(Run({"compare", "clear.png", "again.png"}).exit_code, 0);
  const RunResult other = Run({"compare", "clear.png", "flat.png"});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.out, HasSubstr("the run has no alpha, and counts as opaque"));
  ExpectRefused({"generate", "x", "-m", kModel, "--size", "48x32"}, kUsage, "multiples of 32");
}

TEST_F(AlphaCli, ResumedBatchesTellBackgroundsApart) {
  folder_.Write("prompts.txt", "a ghost\na star\n");
  const Arguments batch =
      Arguments{"generate", "--prompts", "prompts.txt", "-o", "batch.png", "--resume-dir", "unfinished"} +
      kSmall;
  Do(batch);
  EXPECT_THAT(Run(batch).out, HasSubstr("batch-001.png: already drawn"));
  EXPECT_THAT(Run(batch + Arguments{"--background", "white"}).out, Not(HasSubstr("already drawn")));
  EXPECT_EQ(Read("batch-001.png").channels, 3);
}

TEST_F(AlphaCli, EditsSeeIt) {
  WriteSlope("slope.png", 96, 64);
  WritePng(Path("white.png"), Flatten(Read("slope.png")));
  const Arguments edit = {"edit", "make it green", "-m", kModel, "--steps", "2"};
  EXPECT_THAT(Do(edit + Arguments{"-i", "slope.png", "-o", "seen.png"}), Not(HasSubstr("laid on white")));
  Do(edit + Arguments{"-i", "white.png", "-o", "unseen.png"});
  EXPECT_NE(Read("seen.png").pixels, Read("unseen.png").pixels);
  Do(edit + Arguments{"-i", "slope.png", "--keep-size", "-o", "kept.png"});
  EXPECT_EQ(Read("kept.png").channels, 4);
  EXPECT_EQ(Read("kept.png").width, 96);
}

TEST_F(AlphaCli, WhatAMaskOrMarginsLeaveOutKeepsIt) {
  WriteSlope("slope.png", 96, 64);
  const Image slope = Read("slope.png");
  const Arguments repair = {"generate", "a star",       "-m",        kModel, "--steps",
                            "2",        "--init-image", "slope.png", "-o",   "out.png"};
  WritePng(Path("mask.png"), {2, 1, {0, 0, 0, 255, 255, 255}});
  Do(repair + Arguments{"--mask", "mask.png"});
  const Image masked = Read("out.png");
  ASSERT_EQ(masked.pixels.size(), slope.pixels.size());
  for (size_t i = 0; i < slope.pixels.size(); i += 4 * 96)
    ASSERT_TRUE(std::equal(&slope.pixels[i], &slope.pixels[i + 4 * 40], &masked.pixels[i])) << i;
  EXPECT_NE(masked.pixels, slope.pixels);
  Do(repair + Arguments{"--outpaint", "0,0,32,0"});
  const Image wide = Read("out.png");
  ASSERT_EQ(wide.width, 128);
  ASSERT_EQ(wide.channels, 4);
  for (size_t y = 0; y < 64; ++y)
    ASSERT_TRUE(
        std::equal(&slope.pixels[y * 96 * 4], &slope.pixels[y * 96 * 4] + 96 * 4, &wide.pixels[y * 128 * 4]));
}

TEST_F(AlphaCli, SigmasOfOthersAndOfTheModelItself) {
  const std::string turbo = QWEN_IMAGE_SOURCE_DIR "/tests/goldens/models/21-micro-turbo";
  const RunResult own = Run({"generate", "a star", "-m", turbo, "--size", "64x32", "--json", "-o", "a.png"});
  ASSERT_EQ(own.exit_code, 0) << own.err;
  const Json record = Json::parse(own.out);
  EXPECT_FALSE(record.contains("sigmas"));
  const int64_t steps = record["steps"];
  ExpectRefused({"generate", "x", "-m", turbo, "--steps", std::to_string(steps + 1)}, kUsage,
                "leave out the steps, or give sigmas");
  const RunResult given = Run(
      {"generate", "a star", "-m", turbo, "--size", "64x32", "--sigmas", "1,0.5", "--json", "-o", "b.png"});
  ASSERT_EQ(given.exit_code, 0) << given.err;
  EXPECT_EQ(Json::parse(given.out)["steps"], 2);
  Do({"generate", "--from", "b.png", "-m", turbo, "-o", "c.png"});
  EXPECT_EQ(Read("c.png").pixels, Read("b.png").pixels);
}

}  // namespace
}  // namespace qwen_image
