// Pictures that start from pictures, as users meet them: edit, --init-image, --mask, --outpaint.
#include <signal.h>

#include "cli_fixture.h"

namespace qwen_image {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class EditCli : public Cli {
 protected:
  // A red disc on blue, a little noisy, so that every pixel can be told from a flat one.
  void WriteDisc(const std::string& name, int64_t width, int64_t height) const {
    WritePng(Path(name), Disc(width, height), {});
  }
  static Image Disc(int64_t width, int64_t height) {
    Image image{width, height, {}};
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        const int64_t dx = 2 * x - width, dy = 2 * y - height, side = std::min(width, height);
        const bool inside = 4 * (dx * dx + dy * dy) < side * side;
        const auto noise = static_cast<uint8_t>((x * 7 + y * 13) % 5);
        const uint8_t red = inside ? 220 : 40, green = 40, blue = inside ? 40 : 210;
        for (const uint8_t value : {red, green, blue}) image.pixels.push_back(value + noise);
      }
    }
    return image;
  }
  // White where x < width / 2.
  void WriteLeftMask(const std::string& name, int64_t width, int64_t height) const {
    Image mask{width, height, std::vector<uint8_t>(static_cast<size_t>(3 * width * height), 0)};
    for (size_t i = 0; i < mask.pixels.size(); ++i) {
      if (static_cast<int64_t>(i / 3) % width < width / 2) mask.pixels[i] = 255;
    }
    WritePng(Path(name), mask, {});
  }

  Image Make(const Arguments& arguments) const {
    const RunResult result = Run(arguments + Arguments{"-q", "-o", "made.png"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.exit_code == 0 ? ReadPng(Path("made.png")) : Image{};
  }
  Json DescribeMade(const Arguments& arguments) const {
    const RunResult result = Run(arguments + Arguments{"-q", "--json", "-o", "made.png"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out, nullptr, false);
  }
};

const Arguments kTwoSteps = {"--steps", "2"};

TEST_F(EditCli, EditsAPictureAndSaysWhatBecameOfIt) {
  WriteDisc("circle.png", 128, 128);
  const RunResult result = Run(
      {"edit", "make the circle green", "--input-image", "circle.png", "-o", "green.png", "--steps", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, MatchesRegex("green\\.png: 128x128, 2 steps, cfg 4, seed 0\n"
                                       "  prompt [0-9.]+ s \\+ pictures [0-9.]+ s \\+ denoise [0-9.]+ s .*\n"
                                       "  input 128x128, worked at 128x128, result 128x128; .*\n"));
  const Image image = ReadPng(Path("green.png"));
  EXPECT_EQ(image.width, 128);
  EXPECT_NE(image.pixels, Disc(128, 128).pixels);
}

TEST_F(EditCli, SeesThePicturesAndTheirOrder) {
  WriteDisc("a.png", 128, 128);
  WriteDisc("b.png", 160, 96);
  const Arguments edit = Arguments{"edit", "x"} + kTwoSteps;
  const Image a = Make(edit + Arguments{"-i", "a.png"});
  EXPECT_EQ(Make(edit + Arguments{"--input-image=a.png"}).pixels, a.pixels);
  EXPECT_EQ(Make(Arguments{"edit", "-i", "a.png", "x"} + kTwoSteps).pixels, a.pixels)
      << "the prompt behind it";
  const Image ab = Make(edit + Arguments{"-i", "a.png", "-i", "b.png"});
  EXPECT_EQ(ab.width, 160) << "the last one decides the size";
  EXPECT_EQ(ab.height, 96);
  const Image ba = Make(edit + Arguments{"-i", "b.png", "-i", "a.png"});
  EXPECT_EQ(ba.width, 128);
  EXPECT_NE(ba.pixels, a.pixels);
}

TEST_F(EditCli, TheSizeFollowsTheInputUnlessAskedOtherwise) {
  WriteDisc("wide.png", 300, 200);
  const Arguments edit = Arguments{"edit", "x", "-i", "wide.png"} + kTwoSteps;
  // calculate_dimensions(128 * 128, 1.5): 156.8 x 104.5 to multiples of 32.
  const Json plain = DescribeMade(edit);
  EXPECT_EQ(plain["width"], 160);
  EXPECT_EQ(plain["height"], 96);
  EXPECT_EQ(plain["source"]["input_width"], 300);
  EXPECT_EQ(plain["source"]["working_width"], 160);
  const Json sized = DescribeMade(edit + Arguments{"--size", "144x112"});
  EXPECT_EQ(sized["width"], 144);
  EXPECT_EQ(sized["source"]["working_height"], 112);
  const Json kept = DescribeMade(edit + Arguments{"--keep-size"});
  EXPECT_EQ(kept["width"], 300);
  EXPECT_EQ(kept["height"], 200);
  EXPECT_EQ(kept["source"]["working_width"], 160);
}

TEST_F(EditCli, RepeatsAnEditFromItsSettings) {
  WriteDisc("wide.png", 300, 200);
  const Image first =
      Make({"edit", "make the circle green", "-i", "wide.png", "--steps", "2", "--seed", "5", "--keep-size"});
  EXPECT_EQ(Run({"edit", "--from", "made.png", "-i", "wide.png", "-q", "-o", "again.png"}).exit_code, 0);
  EXPECT_EQ(ReadPng(Path("again.png")).pixels, first.pixels);
  ExpectRefused({"edit", "--from", "made.png", "-o", "x.png"}, kUsage, "--input-image wide.png");
  ExpectRefused({"generate", "--from", "made.png", "-o", "x.png"}, kUsage, "qwen-image edit --from");
}

TEST_F(EditCli, BeginsWithAPictureAndLeavesItByTheStrength) {
  WriteDisc("start.png", 128, 128);
  const auto distance = [&](const char* strength) {
    const Image image = Make({"generate", "a white star on a black background", "--init-image", "start.png",
                              "--strength", strength, "--steps", "10"});
    const Image start = Disc(128, 128);
    double sum = 0;
    for (size_t i = 0; i < start.pixels.size(); ++i) sum += std::abs(image.pixels[i] - start.pixels[i]);
    return sum / static_cast<double>(start.pixels.size());
  };
  const double little = distance("0.1"), much = distance("0.9");
  EXPECT_LT(little, 20);
  EXPECT_GT(much, 2 * little);
  const Json half =
      DescribeMade({"generate", "x", "--init-image", "start.png", "--strength", "0.5", "--steps", "10"});
  EXPECT_EQ(half["steps"], 10);
  EXPECT_EQ(half["steps_run"], 5);
  EXPECT_EQ(half["strength"], 0.5);
}

TEST_F(EditCli, PixelsOutsideTheMaskComeOutAsTheyWentIn) {
  // A size that no model draws at.
  WriteDisc("photo.png", 133, 101);
  WriteLeftMask("mask.png", 133, 101);
  const Image before = Disc(133, 101);
  for (const Arguments& command : {Arguments{"generate", "a star", "--init-image", "photo.png"},
                                   Arguments{"edit", "a star", "-i", "photo.png"}}) {
    SCOPED_TRACE(command[0]);
    const Image after = Make(command + Arguments{"--mask", "mask.png", "--strength", "1"} + kTwoSteps);
    ASSERT_EQ(after.width, 133);
    ASSERT_EQ(after.height, 101);
    int64_t changed = 0;
    for (size_t i = 0; i < before.pixels.size(); ++i) {
      const bool masked = static_cast<int64_t>(i / 3) % 133 < 133 / 2;
      if (!masked) {
        ASSERT_EQ(after.pixels[i], before.pixels[i]) << i;
      }
      changed += after.pixels[i] != before.pixels[i];
    }
    EXPECT_GT(changed, 1000);
  }
  const Image raw = Make({"generate", "a star", "--init-image", "photo.png", "--mask", "mask.png",
                          "--no-blend", "--steps", "2"});
  EXPECT_EQ(raw.width % 16, 0) << "as the model drew it";
}

TEST_F(EditCli, OutpaintingKeepsThePictureInTheMiddle) {
  WriteDisc("photo.png", 96, 96);
  const Image before = Disc(96, 96);
  const Image after =
      Make({"generate", "a circle", "--init-image", "photo.png", "--outpaint", "16,8,32,0", "--steps", "2"});
  EXPECT_EQ(DescribeMade({"generate", "a circle", "--init-image", "photo.png", "--outpaint", "16,8,32,0",
                          "--steps", "2"})["source"]["input_width"],
            96);
  ASSERT_EQ(after.width, 96 + 16 + 32);
  ASSERT_EQ(after.height, 96 + 8);
  for (int64_t y = 0; y < 96; ++y) {
    for (int64_t x = 0; x < 3 * 96; ++x) {
      ASSERT_EQ(after.pixels[static_cast<size_t>((y + 8) * 3 * after.width + 3 * 16 + x)],
                before.pixels[static_cast<size_t>(y * 3 * 96 + x)]);
    }
  }
}

TEST_F(EditCli, ResumesAnEditToTheSamePicture) {
  WriteDisc("a.png", 64, 64);
  // More lines than a terminal takes that nobody reads, so that it cannot finish before it is killed.
  const Arguments edit = {
      "edit", "make the circle green", "-i", "a.png", "--size", "32x32", "--steps", "150", "--cfg", "1"};
  const Image whole = Make(edit);
  {
    RunningProgram program(edit + Arguments{"--resume-dir", "states", "-o", "out.png"},
                           {.folder = folder_.path(), .standard_error = Stream::kTerminal});
    ASSERT_TRUE(program.WaitForError("step 3/"));
    program.Signal(SIGKILL);
    EXPECT_EQ(program.Finish().exit_code, 128 + SIGKILL);
  }
  const Json resumed = DescribeMade(edit + Arguments{"--resume-dir", "states"});
  EXPECT_GE(resumed["steps_resumed"], 3);
  EXPECT_EQ(ReadPng(Path("made.png")).pixels, whole.pixels);
}

TEST_F(EditCli, EmbeddingsOfAnEditAreKeptForTheSamePictureOnly) {
  WriteDisc("a.png", 128, 128);
  WritePng(Path("b.png"), Disc(128, 128), {{"x", "the same pixels in another file"}});
  Image other = Disc(128, 128);
  other.pixels[0] ^= 64;
  WritePng(Path("c.png"), other, {});
  const auto cached = [&](const char* image) {
    return DescribeMade(
        {"edit", "x", "-i", image, "--steps", "1", "--prompt-cache", "cache"})["prompt_from_cache"];
  };
  EXPECT_EQ(cached("a.png"), false);
  EXPECT_EQ(cached("a.png"), true);
  EXPECT_EQ(cached("b.png"), true);
  EXPECT_EQ(cached("c.png"), false);
}

TEST_F(EditCli, WhatCannotWorkIsRefusedBeforeAnythingIsDrawn) {
  WriteDisc("a.png", 64, 64);
  WriteLeftMask("mask.png", 64, 64);
  folder_.Write("text.png", "hello");
  const auto refuse = [&](const Arguments& arguments, int code, const char* message) {
    ExpectRefused(arguments + Arguments{"-o", "out.png"}, code, message);
  };
  refuse({"edit", "x"}, kUsage, "--input-image");
  refuse({"edit", "-i", "a.png"}, kUsage, "prompt");
  refuse({"edit", "x", "-i", "missing.png"}, kBadInput, "missing.png");
  refuse({"edit", "x", "-i", "text.png"}, kBadInput, "text.png");
  refuse({"edit", "x", "-i", ""}, kUsage, "empty");
  refuse({"edit", "x", "-i", "a.png", "--size", "100x100"}, kUsage, "nearest valid size");
  refuse({"edit", "x", "-i", "a.png", "--strength", "0.5"}, kUsage, "mask or margins");
  refuse({"edit", "x", "-i", "a.png", "-i", "a.png", "--mask", "mask.png"}, kUsage, "takes one input image");
  refuse({"edit", "x", "-i", "a.png", "--init-image", "a.png"}, kUsage, "--init-image");
  refuse({"generate", "x", "--strength", "0.5"}, kUsage, "an initial image");
  refuse({"generate", "x", "--mask", "mask.png"}, kUsage, "need a picture");
  refuse({"generate", "x", "--init-image", "a.png", "--mask", "a.png"}, kUsage, "no white part");
  refuse({"generate", "x", "--init-image", "a.png", "--no-blend"}, kUsage, "--mask");
  refuse({"generate", "x", "--keep-size"}, kUsage, "keeping the size needs an input picture");
  refuse({"generate", "x", "--init-image", "a.png", "--strength", "0"}, kUsage, "leaves none of");
  refuse({"generate", "x", "--init-image", "a.png", "--strength", "1.5"}, kUsage, "from 0 to 1");
  refuse({"generate", "x", "--init-image", "a.png", "--strength", "nan"}, kUsage, "from 0 to 1");
  for (const char* margins : {"1,2,3", "1,2,3,4,5", "a,b,c,d", "-1,0,0,0", "1,,2,3", ",", "0,0,0,0"})
    refuse({"generate", "x", "--init-image", "a.png", "--outpaint", margins}, kUsage,
           "LEFT,TOP,RIGHT,BOTTOM");
}

TEST_F(EditCli, AModelForTextAloneDoesNotEdit) {
  WriteDisc("a.png", 64, 64);
  const ModelCopy model(Path("model"));
  model.Edit("qwen_image.json", "\"edit-2509\"", "\"qwen-image\"");
  ExpectRefused({"edit", "x", "-i", "a.png", "-m", model.path().string(), "-o", "out.png"}, kUsage,
                "not made for editing");
}

TEST_F(EditCli, SaysWhatWasDoneWithAPicture) {
  // Half transparent.
  folder_.Write("clear.png", ReadBytes(std::filesystem::path(QWEN_IMAGE_SOURCE_DIR) /
                                       "tests/goldens/images/png_rgba.png"));
  const RunResult result = Run({"edit", "x", "-i", "clear.png", "--steps", "1", "-o", "out.png"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("note: clear.png: transparent parts"));
}

}  // namespace
}  // namespace qwen_image
