#include "image/alignment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <random>

#include "files/png.h"
#include "image/plane.h"
#include "kernels/resize.h"

namespace qwen_image::image {
namespace {

ThreadPool& Pool() {
  static ThreadPool pool(2);
  return pool;
}

using Colour = std::array<double, 3>;
// The colour at a point of the plane; pictures show (-1, -1) to (1, 1).
using Scene = std::function<Colour(double x, double y)>;

struct Move {
  double shift_x = 0, shift_y = 0;  // pixels
  double scale_x = 0, scale_y = 0;  // per cent
};

// The scene after a move, with 3 × 3 samples a pixel.
Image Draw(const Scene& scene, int64_t width, int64_t height, const Move& move = {}) {
  constexpr int kSamples = 3;
  Image image{width, height, {}};
  for (int64_t i = 0; i < width * height; ++i) {
    Colour sum = {};
    for (int s = 0; s < kSamples * kSamples; ++s) {
      const double px = static_cast<double>(i % width) + (s % kSamples + 0.5) / kSamples;
      const double py = static_cast<double>(i / width) + (s / kSamples + 0.5) / kSamples;
      const double half_width = static_cast<double>(width) / 2, half_height = static_cast<double>(height) / 2;
      const Colour colour = scene((px - half_width - move.shift_x) / (1 + move.scale_x / 100) / half_width,
                                  (py - half_height - move.shift_y) / (1 + move.scale_y / 100) / half_height);
      for (size_t c = 0; c < 3; ++c) sum[c] += colour[c] / (kSamples * kSamples);
    }
    for (const double value : sum) {
      image.pixels.push_back(static_cast<uint8_t>(std::clamp(value + 0.5, 0.0, 255.0)));
    }
  }
  return image;
}

struct Shape {
  bool round;
  double x, y, half_width, half_height;
  Colour colour;
  bool Has(double px, double py) const {
    const double dx = (px - x) / half_width, dy = (py - y) / half_height;
    return round ? dx * dx + dy * dy < 1 : std::max(std::abs(dx), std::abs(dy)) < 1;
  }
};

// Discs and boxes over each other, also beyond the borders.
std::vector<Shape> RandomShapes(uint32_t seed, int count = 30) {
  std::mt19937 engine(seed);
  const auto uniform = [&](double low, double high) {
    return low + (high - low) * (engine() >> 8) * 0x1p-24;
  };
  std::vector<Shape> shapes;
  for (int i = 0; i < count; ++i) {
    const bool round = uniform(0, 1) < 0.5;
    const double x = uniform(-1.2, 1.2), y = uniform(-1.2, 1.2), w = uniform(0.05, 0.5),
                 h = uniform(0.05, 0.5);
    shapes.push_back({round, x, y, w, h, {uniform(0, 255), uniform(0, 255), uniform(0, 255)}});
  }
  return shapes;
}

Scene SceneOf(const std::vector<Shape>& shapes, Colour background = {90, 110, 130}) {
  return [=](double x, double y) {
    for (auto shape = shapes.rbegin(); shape != shapes.rend(); ++shape) {
      if (shape->Has(x, y)) return shape->colour;
    }
    return background;
  };
}

constexpr Colour kRed = {220, 40, 40}, kGreen = {40, 170, 60}, kBlue = {40, 60, 200},
                 kYellow = {240, 220, 60};

Scene Disc(Colour colour, Colour background) {
  return SceneOf({{true, 0.05, -0.1, 0.55, 0.55, colour}}, background);
}

Image WithNoise(Image image, double spread) {
  std::mt19937 engine(5);
  std::normal_distribution<double> normal(0, spread);
  for (uint8_t& value : image.pixels)
    value = static_cast<uint8_t>(std::clamp(value + normal(engine), 0.0, 255.0));
  return image;
}

// A quarter of a pixel, at the centre and (for the scales) at the borders.
void ExpectMove(const Alignment& got, const Move& want, const Image& output) {
  constexpr double kPixels = 0.25;
  EXPECT_TRUE(got.measurable) << "confidence " << got.confidence << ", uncertainty " << got.uncertainty;
  EXPECT_NEAR(got.shift_x, want.shift_x, kPixels);
  EXPECT_NEAR(got.shift_y, want.shift_y, kPixels);
  EXPECT_NEAR(got.scale_x, want.scale_x, 100 * kPixels / (static_cast<double>(output.width) / 2));
  EXPECT_NEAR(got.scale_y, want.scale_y, 100 * kPixels / (static_cast<double>(output.height) / 2));
}

void ExpectMeasures(const Scene& before, const Scene& after, int64_t width, int64_t height, const Move& move,
                    double noise = 0) {
  SCOPED_TRACE(::testing::Message() << move.shift_x << ", " << move.shift_y << " pixels, " << move.scale_x
                                    << ", " << move.scale_y << " %");
  const Image input = Draw(before, width, height);
  Image output = Draw(after, width, height, move);
  if (noise > 0) output = WithNoise(output, noise);
  ExpectMove(MeasureAlignment(input, output, Pool()), move, output);
}

constexpr Move kMoves[] = {
    {0, 0, 0, 0}, {0.5, -7.25, 0, 0}, {3, -0.5, -2, -2}, {0, 0, 3, 3}, {-4, 1.5, 1, -1}};

TEST(MeasureAlignment, FindsShiftsAndScales) {
  const Scene scene = SceneOf(RandomShapes(1));
  for (const Move& move : kMoves) ExpectMeasures(scene, scene, 200, 160, move);
}

TEST(MeasureAlignment, FindsAShiftTooFarToFollowSlopes) {
  const Scene scene = SceneOf(RandomShapes(6));
  ExpectMeasures(scene, scene, 200, 160, {31, -24, 4, 4});
}

TEST(MeasureAlignment, FindsThemInAFlatPictureWithOneRecolouredDisc) {
  for (const Move& move : kMoves) ExpectMeasures(Disc(kRed, kBlue), Disc(kGreen, kBlue), 128, 128, move);
  ExpectMeasures(Disc(kRed, kBlue), Disc(kRed, kYellow), 128, 128, {3, -0.5, -2, -2});
}

TEST(MeasureAlignment, FindsThemUnderNoise) {
  const Scene scene = SceneOf(RandomShapes(2));
  ExpectMeasures(scene, scene, 200, 160, {2, -3, 1, -1}, 8);
  ExpectMeasures(Disc(kRed, kBlue), Disc(kGreen, kBlue), 128, 128, {-7.25, 3, 0, 0}, 3);
}

TEST(MeasureAlignment, FindsThemWhereAPartWasRedrawn) {
  std::vector<Shape> before = RandomShapes(3), after = before;
  for (size_t i = 0; i < after.size(); i += 3) std::swap(after[i].colour[0], after[i].colour[2]);
  after.push_back({false, -0.5, 0.4, 0.45, 0.5, kYellow});
  after.push_back({true, -0.5, 0.4, 0.3, 0.2, kGreen});
  for (const Move& move : {Move{}, Move{3, 2, 0, 0}, Move{-4, 1.5, 2, 3}}) {
    ExpectMeasures(SceneOf(before), SceneOf(after, {10, 200, 40}), 200, 160, move, 3);
  }
}

// docs/images/circle.png is the embedded model's; the move is made of four-fold pixels.
TEST(MeasureAlignment, FindsThemInThePictureOfTheEmbeddedModel) {
  const Image input = ReadPng(QWEN_IMAGE_SOURCE_DIR "/docs/images/circle.png");
  const Image large = Resize(input, 4 * input.width, 4 * input.height, ResizeFilter::kLanczos, Pool());
  const Scene scene = [&](double x, double y) {
    const auto index = [](double at, int64_t size) {
      return std::clamp<int64_t>(std::llround((at + 1) / 2 * static_cast<double>(size) - 0.5), 0, size - 1);
    };
    const auto i = static_cast<size_t>(3 * (index(y, large.height) * large.width + index(x, large.width)));
    const uint8_t* rgb = large.pixels.data() + i;
    return Colour{static_cast<double>(rgb[1]), static_cast<double>(rgb[2]), static_cast<double>(rgb[0])};
  };
  for (const Move& move : {Move{}, Move{3, 2, 0, 0}, Move{-4, 1.5, 2, 3}}) {
    const Image output = Draw(scene, input.width, input.height, move);
    ExpectMove(MeasureAlignment(input, output, Pool()), move, output);
  }
}

TEST(MeasureAlignment, LeavesOutTheResizeToTheOutputsSize) {
  const Scene scene = SceneOf(RandomShapes(4));
  const Image input = Draw(scene, 260, 180), output = Draw(scene, 192, 160, {1.5, 0, 0, 1});
  ExpectMove(MeasureAlignment(input, output, Pool()), {1.5, 0, 0, 1}, output);
}

TEST(MeasureAlignment, SaysWhenThereIsNothingToMeasure) {
  for (uint32_t seed = 10; seed < 13; ++seed) {
    const Alignment redrawn = MeasureAlignment(Draw(SceneOf(RandomShapes(seed)), 128, 96),
                                               Draw(SceneOf(RandomShapes(seed + 50)), 128, 96), Pool());
    EXPECT_FALSE(redrawn.measurable) << seed << ": confidence " << redrawn.confidence;
  }
  const Image disc = Draw(Disc(kRed, kBlue), 128, 128), flat = Draw(SceneOf({}), 128, 128);
  EXPECT_FALSE(MeasureAlignment(flat, flat, Pool()).measurable);
  EXPECT_FALSE(MeasureAlignment(disc, flat, Pool()).measurable);
  EXPECT_FALSE(MeasureAlignment(flat, disc, Pool()).measurable);
  EXPECT_FALSE(MeasureAlignment(disc, Draw(Disc(kRed, kBlue), 31, 40), Pool()).measurable);
  EXPECT_FALSE(
      MeasureAlignment(WithNoise(flat, 20), Draw(SceneOf(RandomShapes(7)), 128, 128), Pool()).measurable);
  // Upright stripes do not show how far they moved down.
  const Scene stripes = [](double x, double) { return std::sin(20 * x + 3 * x * x) > 0 ? kRed : kBlue; };
  EXPECT_FALSE(MeasureAlignment(Draw(stripes, 128, 128), Draw(stripes, 128, 128), Pool()).measurable);
}

TEST(PhaseCorrelation, FindsAShift) {
  const Plane a = EdgesOf(Draw(SceneOf(RandomShapes(1)), 100, 80));
  const Plane b = EdgesOf(Draw(SceneOf(RandomShapes(1)), 100, 80, {6, -4, 0, 0}));
  const PhasePeak peak = PhaseCorrelation(a, b);
  EXPECT_EQ(peak.x, 6);
  EXPECT_EQ(peak.y, -4);
  EXPECT_GT(peak.height, 2 * PhaseCorrelation(a, EdgesOf(Draw(SceneOf(RandomShapes(8)), 100, 80))).height);
}

// Three quarters of the picture are seen; what lies hidden in the rest stays where it is, with edges of its
// own.
TEST(MeasureAlignment, HiddenColoursDoNotCount) {
  const Scene scene = SceneOf(RandomShapes(5)), hidden = SceneOf(RandomShapes(6));
  const auto clear = [&](const Move& move) {
    const Image seen = Draw(scene, 256, 192, move), under = Draw(hidden, 256, 192);
    Image rgba{256, 192, {}, 4}, white{256, 192, {}};
    for (size_t i = 0; i < seen.pixels.size() / 3; ++i) {
      const bool visible = i % 256 < 192;
      for (size_t c = 0; c < 3; ++c) {
        rgba.pixels.push_back(visible ? seen.pixels[3 * i + c] : under.pixels[3 * i + c]);
        white.pixels.push_back(visible ? seen.pixels[3 * i + c] : uint8_t{255});
      }
      rgba.pixels.push_back(visible ? 255 : 0);
    }
    return std::pair(rgba, white);
  };
  const auto [input, white_input] = clear({});
  const auto [output, white_output] = clear({.shift_x = 2.5, .shift_y = -1.25});
  const Alignment found = MeasureAlignment(input, output, Pool());
  const Alignment expected = MeasureAlignment(white_input, white_output, Pool());
  ASSERT_TRUE(found.measurable);
  EXPECT_EQ(found.shift_x, expected.shift_x);
  EXPECT_EQ(found.shift_y, expected.shift_y);
  EXPECT_EQ(found.confidence, expected.confidence);
  EXPECT_EQ(MeasureAlignment(white_input, output, Pool()).shift_x, expected.shift_x)
      << "one of them has none";
}

}  // namespace
}  // namespace qwen_image::image
