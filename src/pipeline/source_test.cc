#include "pipeline/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "files/testing.h"

namespace qwen_image {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Image Noise(int64_t width, int64_t height, unsigned seed) {
  std::mt19937 random(seed);
  Image image{width, height, std::vector<uint8_t>(static_cast<size_t>(3 * width * height))};
  for (uint8_t& value : image.pixels) value = static_cast<uint8_t>(random() % 256);
  return image;
}

GreyImage Filled(int64_t width, int64_t height, uint8_t value) {
  return {width, height, std::vector<uint8_t>(static_cast<size_t>(width * height), value)};
}

TEST(ExtendCanvas, ContinuesTheEdges) {
  const Image image{2, 1, {10, 11, 12, 20, 21, 22}};
  const Image wide = ExtendCanvas(image, {.left = 1, .top = 0, .right = 2, .bottom = 1});
  EXPECT_EQ(wide.width, 5);
  EXPECT_EQ(wide.height, 2);
  const std::vector<uint8_t> row = {10, 11, 12, 10, 11, 12, 20, 21, 22, 20, 21, 22, 20, 21, 22};
  std::vector<uint8_t> both = row;
  both.insert(both.end(), row.begin(), row.end());
  EXPECT_EQ(wide.pixels, both);
}

TEST(ExtendCanvas, ContinuesTransparentEdges) {
  const Image image{2, 1, {10, 11, 12, 13, 20, 21, 22, 0}, 4};
  const Image wide = ExtendCanvas(image, {.left = 1, .right = 1});
  EXPECT_EQ(wide.channels, 4);
  EXPECT_THAT(wide.pixels, ElementsAre(10, 11, 12, 13, 10, 11, 12, 13, 20, 21, 22, 0, 20, 21, 22, 0));
}

TEST(ExtendMask, IsWhiteOutside) {
  const GreyImage mask{2, 1, {0, 200}};
  const GreyImage wide = ExtendMask(mask, {.left = 1, .top = 1, .right = 0, .bottom = 0});
  EXPECT_THAT(wide.pixels, ElementsAre(255, 255, 255, 255, 0, 200));
}

TEST(Source, IsTheInitialImageOrTheOneInputImage) {
  ThreadPool pool(1);
  GenerateRequest request;
  EXPECT_FALSE(SourceOf(request, pool));
  request.input_images = {Noise(4, 4, 1)};
  EXPECT_FALSE(SourceOf(request, pool)) << "an edit begins with noise";
  request.mask = Filled(4, 4, 255);
  EXPECT_EQ(SourceOf(request, pool)->image.pixels, request.input_images[0].pixels);

  GenerateRequest begun;
  begun.init_image = Noise(5, 3, 2);
  EXPECT_EQ(SourceOf(begun, pool)->image.pixels, begun.init_image->pixels);
  EXPECT_FALSE(SourceOf(begun, pool)->mask);
}

TEST(Source, MarginsAreDrawnAndTheRestStays) {
  ThreadPool pool(1);
  GenerateRequest request;
  request.init_image = Noise(4, 4, 1);
  request.outpaint = {.left = 2, .top = 0, .right = 0, .bottom = 1};
  const std::optional<Source> source = SourceOf(request, pool);
  EXPECT_EQ(source->image.width, 6);
  EXPECT_EQ(source->image.height, 5);
  int64_t white = 0;
  for (const uint8_t value : source->mask->pixels) white += value == 255;
  EXPECT_EQ(white, 6 * 5 - 4 * 4);
  // A mask, of whatever size, goes on holding.
  request.mask = Filled(8, 8, 255);
  const std::optional<Source> masked = SourceOf(request, pool);
  EXPECT_EQ(masked->mask->pixels, std::vector<uint8_t>(30, 255));
}

TEST(Source, WhatDoesNotGoTogetherIsRefused) {
  const auto message = [](const std::function<void(GenerateRequest&)>& change) {
    GenerateRequest request;
    change(request);
    return MessageOf(ErrorKind::kUsage, [&] { SourceSize(request); });
  };
  EXPECT_THAT(message([](GenerateRequest& r) { r.mask = Filled(2, 2, 255); }), HasSubstr("need a picture"));
  EXPECT_THAT(message([](GenerateRequest& r) {
                r.init_image = Noise(2, 2, 1);
                r.mask = Filled(2, 2, 127);
              }),
              HasSubstr("no white part"));
  EXPECT_THAT(message([](GenerateRequest& r) { r.outpaint.top = 8; }), HasSubstr("need a picture"));
  EXPECT_THAT(message([](GenerateRequest& r) { r.strength = 0.5; }), HasSubstr("an initial image"));
  EXPECT_THAT(message([](GenerateRequest& r) {
                r.input_images = {Noise(2, 2, 1)};
                r.strength = 0.5;
              }),
              HasSubstr("needs a mask or margins"));
  EXPECT_THAT(message([](GenerateRequest& r) {
                r.input_images = {Noise(2, 2, 1)};
                r.init_image = Noise(2, 2, 1);
              }),
              HasSubstr("leave out the initial one"));
  EXPECT_THAT(message([](GenerateRequest& r) {
                r.input_images = {Noise(2, 2, 1), Noise(2, 2, 2)};
                r.mask = Filled(2, 2, 255);
              }),
              HasSubstr("takes one input image, not 2"));
  EXPECT_THAT(message([](GenerateRequest& r) {
                r.init_image = Noise(2, 2, 1);
                r.outpaint.left = -1;
              }),
              HasSubstr("from 0 to 16384 pixels, not -1"));
  EXPECT_THAT(message([](GenerateRequest& r) {
                r.init_image = Noise(200, 2, 1);
                r.outpaint.left = 16300;
              }),
              HasSubstr("16500x2"));
}

TEST(Source, PicturesThatAreNotWhatTheySayAreRefused) {
  const auto message = [](const std::function<void(GenerateRequest&)>& change) {
    GenerateRequest request;
    request.init_image = Noise(4, 4, 1);
    change(request);
    return MessageOf(ErrorKind::kUsage, [&] { SourceSize(request); });
  };
  EXPECT_THAT(message([](GenerateRequest& r) { r.init_image->height = 5; }),
              HasSubstr("the initial image says that it has 4x5 pixels, but holds 48 values"));
  EXPECT_THAT(message([](GenerateRequest& r) { r.init_image->width = -4; }), HasSubstr("-4x4"));
  EXPECT_THAT(message([](GenerateRequest& r) { r.init_image->width = int64_t{1} << 62; }),
              HasSubstr("the initial image"));
  EXPECT_THAT(message([](GenerateRequest& r) { r.input_images = {Image{}}; }), HasSubstr("0x0"));
  EXPECT_THAT(message([](GenerateRequest& r) { r.mask = GreyImage{2, 2, {255}}; }), HasSubstr("the mask"));
}

TEST(Blend, LeavesEveryPixelOutsideTheMaskAsItWas) {
  const int64_t width = 40, height = 30;
  const Image original = Noise(width, height, 1), drawn = Noise(width, height, 2);
  GreyImage mask = Filled(width, height, 127);  // just not white
  for (int64_t y = 10; y < 20; ++y) {
    for (int64_t x = 5; x < 25; ++x) mask.pixels[static_cast<size_t>(y * width + x)] = 128;
  }
  const Image blended = Blend(original, drawn, mask);
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const auto at = static_cast<size_t>(3 * (y * width + x));
      const bool inside = y >= 10 && y < 20 && x >= 5 && x < 25;
      const bool deep = y >= 11 && y < 19 && x >= 6 && x < 24;  // out of reach of the edge's mix
      for (size_t c = 0; c < 3; ++c) {
        if (!inside) {
          EXPECT_EQ(blended.pixels[at + c], original.pixels[at + c]) << x << " " << y;
        } else if (deep) {
          EXPECT_EQ(blended.pixels[at + c], drawn.pixels[at + c]) << x << " " << y;
        }
      }
    }
  }
}

// 5 pixels, of which the last two are drawn anew: the first of these lies at the edge.
TEST(Blend, MixesWhatIsVisible) {
  const auto line = [](std::vector<uint8_t> pixel) {
    Image image{5, 1, {}, 4};
    for (int i = 0; i < 5; ++i) image.pixels.insert(image.pixels.end(), pixel.begin(), pixel.end());
    return image;
  };
  const GreyImage mask{5, 1, {0, 0, 0, 255, 255}};
  const auto at = [&](const Image& image, size_t x) {
    return std::vector<uint8_t>(image.pixels.begin() + static_cast<std::ptrdiff_t>(4 * x),
                                image.pixels.begin() + static_cast<std::ptrdiff_t>(4 * x + 4));
  };
  const Image opaque = line({200, 0, 10, 255}), clear = line({0, 255, 0, 0}), half = line({0, 60, 10, 128});
  Image blended = Blend(opaque, clear, mask);
  EXPECT_EQ(blended.channels, 4);
  EXPECT_EQ(at(blended, 2), at(opaque, 0));
  EXPECT_THAT(at(blended, 3), ElementsAre(200, 0, 10, 85)) << "the hidden green does not show";
  EXPECT_EQ(at(blended, 4), at(clear, 0));
  blended = Blend(opaque, half, mask);  // two thirds of alpha 128 against one third of 255
  EXPECT_THAT(at(blended, 3), ElementsAre(100, 30, 10, 170));
  blended = Blend(clear, clear, mask);
  EXPECT_EQ(blended.pixels, clear.pixels);
}

TEST(Source, PicturesGetTheModelsChannels) {
  GenerateRequest request;
  EXPECT_FALSE(WithPicturesOf(3, request));
  request.input_images = {Image{1, 1, {1, 2, 3}}, Image{1, 1, {1, 2, 3, 0}, 4}};
  request.init_image = Image{1, 1, {4, 5, 6}};
  const GenerateRequest rgb = WithPicturesOf(3, request).value();
  EXPECT_THAT(rgb.input_images[0].pixels, ElementsAre(1, 2, 3));
  EXPECT_THAT(rgb.input_images[1].pixels, ElementsAre(255, 255, 255));
  EXPECT_THAT(rgb.init_image->pixels, ElementsAre(4, 5, 6));
  EXPECT_FALSE(WithPicturesOf(3, rgb));
  const GenerateRequest rgba = WithPicturesOf(4, request).value();
  EXPECT_THAT(rgba.input_images[0].pixels, ElementsAre(1, 2, 3, 255));
  EXPECT_THAT(rgba.input_images[1].pixels, ElementsAre(1, 2, 3, 0));
  EXPECT_THAT(rgba.init_image->pixels, ElementsAre(4, 5, 6, 255));
}

}  // namespace
}  // namespace qwen_image
