#include "draw/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "files/testing.h"
#include "image/testing.h"

namespace qwen_image::draw {
namespace {

using image::Filled;
using image::Noise;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
}  // namespace qwen_image::draw
