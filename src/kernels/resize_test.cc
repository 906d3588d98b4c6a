// Against the filters' definition, on every instruction set. That the bits are Pillow's is shown by the
// goldens in model/image_processor_test.cc.
#include "kernels/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <random>
#include <sstream>
#include <string>

#include "kernels/testing.h"
#include "qwen_image/error.h"

namespace qwen_image {
namespace {

using testing::FourThreads;
using testing::OneThread;

struct Case {
  int64_t in_width, in_height, width, height;
};

// Growing, shrinking, both, one pass only, sides of one pixel, more rows than are turned at once.
constexpr Case kCases[] = {{1, 1, 1, 1},    {1, 1, 5, 3},     {7, 5, 1, 1},      {13, 11, 29, 31},
                           {31, 29, 11, 7}, {40, 9, 23, 33},  {9, 70, 33, 20},   {17, 130, 12, 130},
                           {65, 3, 65, 8},  {100, 1, 37, 40}, {128, 64, 33, 65}, {200, 150, 59, 44}};

std::vector<uint8_t> RandomBytes(int64_t count) {
  std::mt19937 engine(static_cast<uint32_t>(count));
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(engine() >> 24);
  return bytes;
}

Image RandomRgb(const Case& c) {
  return {c.in_width, c.in_height, RandomBytes(c.in_width * c.in_height * 3)};
}

double FilterAt(ResizeFilter filter, double x) {
  x = std::abs(x);
  if (filter == ResizeFilter::kLanczos) {
    const double px = std::numbers::pi * x;
    return x == 0 ? 1 : x < 3 ? 3 * std::sin(px) * std::sin(px / 3) / (px * px) : 0;
  }
  // Keys' cubic convolution with a = -1/2.
  return x < 1 ? 1.5 * x * x * x - 2.5 * x * x + 1 : x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2 : 0;
}

// The share of every pixel of a line in pixel `out` of a line of another length.
std::vector<double> Shares(ResizeFilter filter, int64_t in_size, int64_t size, int64_t out) {
  const double scale = static_cast<double>(in_size) / static_cast<double>(size), width = std::max(scale, 1.0);
  std::vector<double> shares(static_cast<size_t>(in_size));
  double total = 0;
  for (int64_t i = 0; i < in_size; ++i) {
    const double x = (static_cast<double>(i) + 0.5 - (static_cast<double>(out) + 0.5) * scale) / width;
    total += shares[static_cast<size_t>(i)] = FilterAt(filter, x);
  }
  for (double& share : shares) share /= total;
  return shares;
}

double Absolute(const std::vector<double>& shares) {
  double sum = 0;
  for (const double share : shares) sum += std::abs(share);
  return sum;
}

std::string Name(const Case& c, ResizeFilter filter) {
  std::ostringstream name;
  name << c.in_width << "x" << c.in_height << " to " << c.width << "x" << c.height
       << (filter == ResizeFilter::kLanczos ? ", Lanczos" : ", bicubic");
  return name.str();
}

// Both passes in real numbers, without rounding in between. The first of two passes rounds by up to half a
// level, which the second one spreads; the pictures stay in the middle of the range, where nothing is
// clipped.
void ExpectFilteredSums(const Case& c, ResizeFilter filter) {
  SCOPED_TRACE(Name(c, filter));
  Image image = RandomRgb(c);
  for (uint8_t& value : image.pixels) value = static_cast<uint8_t>(96 + value / 4);
  const Image out = Resize(image, c.width, c.height, filter, OneThread());
  ASSERT_EQ(out.width, c.width);
  ASSERT_EQ(out.height, c.height);
  ASSERT_EQ(static_cast<int64_t>(out.pixels.size()), c.width * c.height * 3);
  for (int64_t x = 0; x < c.width; ++x) {
    const std::vector<double> across = Shares(filter, c.in_width, c.width, x);
    for (int64_t channel = 0; channel < 3; ++channel) {
      std::vector<double> column(static_cast<size_t>(c.in_height));
      for (size_t i = 0; i < column.size() * across.size(); ++i) {
        column[i / across.size()] +=
            across[i % across.size()] * image.pixels[i * 3 + static_cast<size_t>(channel)];
      }
      for (int64_t y = 0; y < c.height; ++y) {
        const std::vector<double> down = Shares(filter, c.in_height, c.height, y);
        const double want = std::inner_product(down.begin(), down.end(), column.begin(), 0.0);
        const double tolerance = 0.5 + 0.5 * std::max(Absolute(down), Absolute(across)) + 0.01;
        const int got = out.pixels[static_cast<size_t>((y * c.width + x) * 3 + channel)];
        ASSERT_TRUE(std::abs(got - want) <= tolerance)
            << "at " << x << ", " << y << ", channel " << channel << ": got " << got << ", want " << want;
      }
    }
  }
}

TEST(Resize, IsTheSumThatTheFilterDefines) {
  for (const Case& c : kCases) {
    ExpectFilteredSums(c, ResizeFilter::kBicubic);
    ExpectFilteredSums(c, ResizeFilter::kLanczos);
  }
}

TEST(Resize, GivesTheSameBitsOnAllInstructionSetsAndThreads) {
  for (const Case& c : kCases) {
    const Image image = RandomRgb(c);
    std::vector<uint8_t> first;
    testing::ForEachTarget([&] {
      for (ThreadPool* pool : {&OneThread(), &FourThreads()}) {
        const Image out = Resize(image, c.width, c.height, ResizeFilter::kLanczos, *pool);
        if (first.empty()) first = out.pixels;
        ASSERT_EQ(out.pixels, first);
      }
    });
  }
}

TEST(Resize, TreatsAGreyPictureAsOneChannel) {
  for (const Case& c : kCases) {
    const GreyImage grey{c.in_width, c.in_height, RandomBytes(c.in_width * c.in_height)};
    Image rgb{c.in_width, c.in_height, {}};
    for (const uint8_t value : grey.pixels) rgb.pixels.insert(rgb.pixels.end(), 3, value);
    const GreyImage small = Resize(grey, c.width, c.height, ResizeFilter::kBicubic, OneThread());
    const Image want = Resize(rgb, c.width, c.height, ResizeFilter::kBicubic, OneThread());
    ASSERT_EQ(small.pixels.size() * 3, want.pixels.size());
    for (size_t i = 0; i < want.pixels.size(); ++i) ASSERT_EQ(small.pixels[i / 3], want.pixels[i]);
  }
}

TEST(Resize, InvisiblePixelsLendNoColour) {
  // A red pixel beside an invisible green one.
  const Image image{2, 1, {200, 0, 0, 255, 0, 250, 0, 0}, 4};
  const Image out = Resize(image, 16, 1, ResizeFilter::kBicubic, OneThread());
  ASSERT_EQ(out.channels, 4);
  for (size_t i = 0; i < out.pixels.size(); i += 4) {
    EXPECT_EQ(out.pixels[i + 1], 0) << i;
    EXPECT_TRUE(out.pixels[i + 3] == 0 || out.pixels[i] >= 190) << i;
  }
  EXPECT_EQ(out.pixels[3], 255);
  EXPECT_EQ(out.pixels[63], 0);
}

TEST(Resize, ClipsWhatOvershoots) {
  const GreyImage edge{8, 1, {0, 0, 0, 0, 255, 255, 255, 255}};
  const GreyImage out = Resize(edge, 64, 1, ResizeFilter::kLanczos, OneThread());
  // Half a pixel beyond the edge's neighbours, where the sums are about -26 and 281.
  EXPECT_EQ(out.pixels[23], 0);
  EXPECT_EQ(out.pixels[40], 255);
}

TEST(Resize, LeavesAPictureOfTheSameSizeAlone) {
  const Image image = RandomRgb({19, 23, 0, 0});
  EXPECT_EQ(Resize(image, 19, 23, ResizeFilter::kLanczos, OneThread()).pixels, image.pixels);
}

TEST(Resize, RefusesImpossibleSizes) {
  const Image image = RandomRgb({4, 3, 0, 0});
  for (const auto& [width, height] :
       {std::pair<int64_t, int64_t>{0, 3}, {4, 0}, {-1, 3}, {int64_t{1} << 40, 3}}) {
    EXPECT_THROW(Resize(image, width, height, ResizeFilter::kLanczos, OneThread()), Error);
  }
  Image wrong = image;
  wrong.channels = 2;
  EXPECT_THROW(Resize(wrong, 2, 2, ResizeFilter::kLanczos, OneThread()), Error);
  wrong.channels = 4;
  EXPECT_THROW(Resize(wrong, 2, 2, ResizeFilter::kLanczos, OneThread()), Error);
  wrong = image;
  wrong.pixels.pop_back();
  EXPECT_THROW(Resize(wrong, 2, 2, ResizeFilter::kLanczos, OneThread()), Error);
  EXPECT_THROW(Resize(Image{}, 2, 2, ResizeFilter::kLanczos, OneThread()), Error);
}

TEST(InterpolateNearest, TakesTheFirstPixelOfEachBlock) {
  Tensor x({1, 2, 4, 8});
  for (int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const Tensor y = InterpolateNearest(x, 2, 2);
  ASSERT_EQ(y.shape(), (Shape{1, 2, 2, 2}));
  EXPECT_EQ(std::vector<float>(y.data(), y.data() + 8), (std::vector<float>{0, 4, 16, 20, 32, 36, 48, 52}));
}

}  // namespace
}  // namespace qwen_image
