#include <limits>

#include "kernels/interface.h"
#include "kernels/reference.h"
#include "kernels/testing.h"

namespace qwen_image {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): only in this test

struct Picture {
  explicit Picture(const Conv2dShape& shape)
      : x(Random(shape.height * shape.width * shape.in_channels, 1)),
        weight(Random(shape.out_channels * shape.kernel * shape.kernel * shape.in_channels, 2)),
        bias(Random(shape.out_channels, 3)) {}
  std::vector<float> x, weight, bias;
};

size_t OutputSize(const Conv2dShape& s) {
  return static_cast<size_t>(s.out_height() * s.out_width() * s.out_channels);
}

std::vector<float> Convolve(const Picture& p, const Conv2dShape& shape, ThreadPool& pool) {
  std::vector<float> y(OutputSize(shape), -777.0f);
  Conv2d(p.x.data(), shape, p.weight.data(), p.bias.data(), y.data(), pool);
  return y;
}

//                              in  out   h   w  k  s  before after
const Conv2dShape kShapes[] = {{3, 16, 9, 7, 3, 1, 1, 1},     // the encoder's first
                               {16, 3, 8, 11, 3, 1, 1, 1},    // the decoder's last
                               {24, 24, 6, 10, 3, 2, 0, 1},   // the encoder's downsampling
                               {5, 17, 7, 6, 3, 2, 0, 1},     // the same, odd
                               {32, 40, 5, 5, 1, 1, 0, 0},    // a shortcut
                               {7, 9, 6, 4, 1, 2, 0, 0},      // pixels left out
                               {96, 33, 12, 13, 3, 1, 1, 1},  // several depth blocks, borders in each
                               {4, 5, 1, 1, 3, 1, 1, 1},      // only the middle tap is inside
                               {4, 5, 2, 1, 3, 1, 2, 2},      // whole taps and lines outside
                               {6, 8, 20, 40, 3, 1, 0, 0}};   // no padding, several row blocks

TEST(Conv2d, MatchesReferenceForOddSizes) {
  ForEachTarget([] {
    for (const Conv2dShape& s : kShapes) {
      SCOPED_TRACE(::testing::Message()
                   << s.height << "x" << s.width << " " << s.in_channels << "->" << s.out_channels);
      const Picture p(s);
      std::vector<float> want(OutputSize(s)), magnitude(OutputSize(s));
      reference::Conv2d(p.x.data(), s, p.weight.data(), p.bias.data(), want.data());
      Picture sizes = p;
      for (auto* part : {&sizes.x, &sizes.weight, &sizes.bias}) {
        for (float& v : *part) v = std::abs(v);
      }
      reference::Conv2d(sizes.x.data(), s, sizes.weight.data(), sizes.bias.data(), magnitude.data());
      const double n =
          std::sqrt(static_cast<double>(std::min<int64_t>(256, s.kernel * s.kernel * s.in_channels) + 6));
      ExpectNear(Convolve(p, s, FourThreads()), want,
                 [&](int64_t i) { return 2 * n * kUnit * magnitude[i]; });
    }
  });
}

TEST(Conv2d, DoesNotDependOnThreads) {
  const Conv2dShape s{40, 50, 33, 31, 3, 1, 1, 1};
  const Picture p(s);
  ForEachTarget([&] { ExpectSame(Convolve(p, s, OneThread()), Convolve(p, s, FourThreads())); });
}

TEST(Conv2d, NotANumberReachesItsNeighboursOnly) {
  const Conv2dShape s{5, 6, 9, 12, 3, 1, 1, 1};
  Picture p(s);
  p.x[(4 * s.width + 0) * s.in_channels + 2] = std::numeric_limits<float>::quiet_NaN();
  ForEachTarget([&] {
    const std::vector<float> y = Convolve(p, s, FourThreads());
    for (int64_t i = 0; i < s.height * s.width; ++i) {
      const bool near = std::abs(i / s.width - 4) <= 1 && i % s.width <= 1;
      EXPECT_EQ(std::isnan(y[i * s.out_channels]), near)
          << "line " << i / s.width << " column " << i % s.width;
    }
  });
}

}  // namespace
}  // namespace qwen_image
