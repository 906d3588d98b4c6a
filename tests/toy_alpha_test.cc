// Pictures with alpha, everywhere that the library takes and gives them: the toy family draws with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/checkpoint.h"
#include "draw/record.h"
#include "files/colour.h"
#include "files/json.h"
#include "files/png.h"
#include "files/testing.h"
#include "toy_family.h"

namespace qwen_image {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Colours and alpha of all kinds, with hidden colours among them.
Image Slope(int64_t width, int64_t height, int64_t channels) {
  Image image{width, height, {}, channels};
  for (int64_t i = 0; i < width * height; ++i) {
    for (int64_t c = 0; c < 3; ++c) image.pixels.push_back(static_cast<uint8_t>(7 * i + 80 * c));
    if (channels == 4) image.pixels.push_back(static_cast<uint8_t>(i % 5 == 0 ? 0 : 255 - 3 * i % 256));
  }
  return image;
}

// What the autoencoder was given, and what it made.
class SeenPixels : public CheckpointSink {
 public:
  bool Wants(std::string_view name) const override {
    return name.starts_with("vae_image") || name == "image";
  }
  void OnCheckpoint(const std::string& name, const CheckpointView& view) override {
    const float* values = std::get<float*>(view.data);
    seen[name] = {view.shape, {values, values + ElementCount(view.shape)}};
  }
  struct Pixels {
    Shape shape;
    std::vector<float> values;
  };
  std::map<std::string, Pixels> seen;
};

class ToyAlpha : public testing::Test {
 protected:
  const Pipeline& With(int64_t channels) {
    if (const auto found = pipelines_.find(channels); found != pipelines_.end()) return found->second;
    const auto model = folder_.path() / std::to_string(channels);
    WriteToyModel(model, {.channels = channels});
    return pipelines_.emplace(channels, Pipeline(model, {.threads = 1})).first->second;
  }
  static GenerateRequest Request() {
    GenerateRequest request;
    request.prompt = "a toy";
    return request;
  }
  static Json RecordOf(const Picture& picture) { return Json::parse(picture.png_text.at(draw::kRecordKey)); }

  const TempFolder folder_;
  const ScopedFamily registered_{ToyFamily()};
  std::map<int64_t, Pipeline> pipelines_;
};

TEST_F(ToyAlpha, IsDrawnShownAndSaved) {
  const Pipeline& pipeline = With(4);
  EXPECT_EQ(pipeline.channels(), 4);
  EXPECT_EQ(With(3).channels(), 3);
  std::vector<Image> previews;
  const Picture picture =
      pipeline.Generate(Request(), {.on_preview = [&](const Image& p) { previews.push_back(p); }});
  EXPECT_EQ(picture.channels, 4);
  ASSERT_EQ(picture.pixels.size(), 32u * 16 * 4);
  EXPECT_TRUE(picture.image().has_alpha());
  EXPECT_NE(Flatten(picture.image()).pixels, Flatten(picture.image(), {0, 0, 0}).pixels)
      << "nothing is clear";
  ASSERT_EQ(previews.size(), 2u);
  for (const Image& preview : previews) {
    EXPECT_EQ(preview.channels, 4);
    EXPECT_EQ(preview.pixels.size(), 32u * 16 * 4);
  }
  picture.SavePng(folder_.path() / "a.png");
  const Image read = ReadPng(folder_.path() / "a.png", Transparency::kKept);
  EXPECT_EQ(read.channels, 4);
  EXPECT_EQ(read.pixels, picture.pixels);
  EXPECT_EQ(ReadPngText(folder_.path() / "a.png"), picture.png_text);
  EXPECT_FALSE(RecordOf(picture).contains("background"));
  EXPECT_THAT(picture.notes, IsEmpty());
}

TEST_F(ToyAlpha, IsRoundedAsColoursAre) {
  SeenPixels seen;
  const Picture picture = With(4).Generate(Request(), {.checkpoints = &seen});
  ASSERT_EQ(seen.seen["image"].shape, (Shape{1, 4, 16, 32}));
  for (size_t i = 0; i < picture.pixels.size(); ++i) {
    const float value = seen.seen["image"].values[i % 4 * 32 * 16 + i / 4];
    const float unit = std::clamp(value * 0.5f + 0.5f, 0.0f, 1.0f);
    ASSERT_EQ(picture.pixels[i], std::nearbyint(unit * 255.0f)) << i;
  }
}

TEST_F(ToyAlpha, ABackgroundIsLaidUnderIt) {
  const Pipeline& pipeline = With(4);
  const Picture clear = pipeline.Generate(Request());
  GenerateRequest request = Request();
  request.background = "#102030";
  std::vector<Image> previews;
  const Picture picture =
      pipeline.Generate(request, {.on_preview = [&](const Image& p) { previews.push_back(p); }});
  EXPECT_EQ(picture.channels, 3);
  EXPECT_EQ(picture.pixels, Flatten(clear.image(), {0x10, 0x20, 0x30}).pixels);
  ASSERT_EQ(previews.size(), 2u);
  EXPECT_EQ(previews.back().channels, 3);
  EXPECT_EQ(RecordOf(picture)["background"], "#102030");
  EXPECT_THAT(picture.notes, IsEmpty());

  request.background = "transparent";
  EXPECT_EQ(pipeline.Generate(request).pixels, clear.pixels);
  request.background = "Pink";
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { pipeline.Check(request); }),
              AllOf(HasSubstr("\"Pink\" is not a background"), HasSubstr("#rrggbb"), HasSubstr("white, ")));
}

TEST_F(ToyAlpha, RunsAreToldApartByTheirBackground) {
  const Pipeline& pipeline = With(4);
  const auto id = [&](const std::string& background) {
    GenerateRequest request = Request();
    request.background = background;
    return pipeline.RunId(request);
  };
  EXPECT_EQ(id(""), id("transparent"));
  EXPECT_EQ(id("white"), id("#ffffff"));
  EXPECT_NE(id("white"), id(""));
  EXPECT_NE(id("white"), id("black"));
}

TEST_F(ToyAlpha, ModelsWithoutItRefuseATransparentBackground) {
  const Pipeline& pipeline = With(3);
  GenerateRequest request = Request();
  const Picture plain = pipeline.Generate(request);
  const std::string id = pipeline.RunId(request);
  EXPECT_EQ(plain.channels, 3);
  request.background = "black";
  const Picture picture = pipeline.Generate(request);
  EXPECT_EQ(picture.pixels, plain.pixels);
  EXPECT_THAT(picture.notes, Contains(HasSubstr("the background has no effect")));
  EXPECT_EQ(pipeline.RunId(request), id);
  request.background = "transparent";
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { pipeline.Check(request); }),
              HasSubstr("draws no transparent pictures"));
}

TEST_F(ToyAlpha, ReferencesKeepIt) {
  GenerateRequest request = Request();
  request.input_images = {Slope(16, 8, 3), Slope(8, 12, 4)};
  SeenPixels seen;
  With(4).Generate(request, {.checkpoints = &seen});
  const auto expect_seen = [&](const std::string& name, const Image& image) {
    ASSERT_TRUE(seen.seen.contains(name));
    EXPECT_EQ(seen.seen[name].shape, (Shape{1, 4, image.height, image.width}));
    const int64_t area = image.width * image.height;
    for (int64_t i = 0; i < 4 * area; ++i) {
      const uint8_t level = image.pixels[static_cast<size_t>(i % area * 4 + i / area)];
      ASSERT_EQ(seen.seen[name].values[static_cast<size_t>(i)], 2 * static_cast<float>(level) / 255 - 1) << i;
    }
  };
  expect_seen("vae_image0", WithChannels(request.input_images[0], 4));
  expect_seen("vae_image1", request.input_images[1]);
}

TEST_F(ToyAlpha, APictureToBeginWithKeepsIt) {
  GenerateRequest request = Request();
  request.init_image = Slope(32, 16, 4);
  SeenPixels seen;
  const Picture picture = With(4).Generate(request, {.checkpoints = &seen});
  EXPECT_EQ(seen.seen["vae_image0"].shape, (Shape{1, 4, 16, 32}));
  ASSERT_TRUE(picture.source);
  GenerateRequest flat = request;
  flat.init_image = Flatten(*request.init_image);
  EXPECT_NE(With(4).Generate(flat).pixels, picture.pixels);
  EXPECT_NE(With(4).RunId(flat), With(4).RunId(request));
}

TEST_F(ToyAlpha, ResultsAreBroughtToASizeWithIt) {
  GenerateRequest request = Request();
  request.init_image = Slope(32, 16, 4);
  const Picture drawn = With(4).Generate(request);
  request.init_image = Slope(35, 17, 4);
  request.keep_size = true;
  const Picture kept = With(4).Generate(request);
  EXPECT_EQ(kept.width, 35);
  EXPECT_EQ(kept.height, 17);
  EXPECT_EQ(kept.channels, drawn.channels);
  EXPECT_EQ(kept.pixels.size(), 35u * 17 * 4);
}

TEST_F(ToyAlpha, WhatAMaskLeavesOutComesOutBitByBit) {
  GenerateRequest request = Request();
  request.init_image = Slope(32, 16, 4);
  request.mask = GreyImage{32, 16, std::vector<uint8_t>(32 * 16, 0)};
  for (size_t i = 0; i < request.mask->pixels.size(); ++i) request.mask->pixels[i] = i % 32 < 16 ? 0 : 255;
  const Picture picture = With(4).Generate(request);
  ASSERT_EQ(picture.channels, 4);
  bool changed = false;
  for (size_t i = 0; i < picture.pixels.size(); ++i) {
    const bool kept = i / 4 % 32 < 16;
    const bool same = picture.pixels[i] == request.init_image->pixels[i];
    ASSERT_TRUE(same || !kept) << i;
    changed |= !same;
  }
  EXPECT_TRUE(changed);
}

TEST_F(ToyAlpha, MarginsAreAddedToIt) {
  GenerateRequest request = Request();
  request.init_image = Slope(16, 16, 4);
  request.outpaint = {.left = 16};
  const Picture picture = With(4).Generate(request);
  EXPECT_EQ(picture.width, 32);
  EXPECT_EQ(picture.height, 16);
  for (int64_t i = 0; i < 16 * 16 * 4; ++i) {
    const int64_t y = i / 4 / 16, x = i / 4 % 16 + 16;
    ASSERT_EQ(picture.pixels[static_cast<size_t>((y * 32 + x) * 4 + i % 4)],
              request.init_image->pixels[static_cast<size_t>(i)]);
  }
}

TEST_F(ToyAlpha, ModelsWithoutItSeePicturesOnWhite) {
  const Pipeline& pipeline = With(3);
  GenerateRequest request = Request(), flat = Request();
  request.init_image = Slope(32, 16, 4);
  flat.init_image = Flatten(*request.init_image);
  const Picture expected = pipeline.Generate(flat), picture = pipeline.Generate(request);
  EXPECT_EQ(picture.channels, 3);
  EXPECT_EQ(picture.pixels, expected.pixels);
  EXPECT_EQ(picture.notes, expected.notes);
  EXPECT_EQ(pipeline.RunId(request), pipeline.RunId(flat));
  // At full size, before the picture is resized.
  request.width = flat.width = 32;
  request.height = flat.height = 16;
  request.init_image = Slope(50, 30, 4);
  flat.init_image = Flatten(*request.init_image);
  request.mask = flat.mask = GreyImage{2, 1, {0, 255}};
  EXPECT_EQ(pipeline.Generate(request).pixels, pipeline.Generate(flat).pixels);
}

TEST_F(ToyAlpha, OtherNumbersOfChannelsAreRefused) {
  GenerateRequest request = Request();
  request.init_image = Image{2, 1, {1, 2, 3, 4}, 2};
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { With(4).Check(request); }),
              HasSubstr("the initial image has 2 channels; 3 (RGB) and 4 (RGBA) are taken"));
  request.init_image = Image{2, 1, {1, 2, 3, 4, 5, 6}, 4};
  EXPECT_THAT(MessageOf(ErrorKind::kUsage, [&] { With(4).Check(request); }), HasSubstr("but holds 6 values"));
}

TEST_F(ToyAlpha, GivenSigmasAreRecordedAndTellRunsApart) {
  const Pipeline& pipeline = With(4);
  GenerateRequest request = Request();
  const std::string id = pipeline.RunId(request);
  EXPECT_FALSE(RecordOf(pipeline.Generate(request)).contains("sigmas"));
  request.sigmas = {1, 0.7, 0.25};
  const Picture picture = pipeline.Generate(request);
  EXPECT_EQ(picture.steps, 3);
  EXPECT_EQ(RecordOf(picture)["sigmas"], Json({1, 0.7, 0.25}));
  EXPECT_NE(pipeline.RunId(request), id);
  EXPECT_NE(pipeline.Generate(Request()).pixels, picture.pixels);
}

}  // namespace
}  // namespace qwen_image
