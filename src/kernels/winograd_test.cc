#include <algorithm>
#include <bit>
#include <limits>

#include "core/fail.h"
#include "kernels/interface.h"
#include "kernels/reference.h"
#include "kernels/testing.h"

namespace qwen_image {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): only in this test

struct Case {
  explicit Case(const Conv3x3Shape& s, int64_t slices = 1, float scale = 1.0f)
      : shape(s),
        x(Random(s.height * s.width * s.in_channels, 1, scale)),
        weight(Random(s.out_channels * s.in_channels * slices * 9, 2)),
        bias(Random(s.out_channels, 3)),
        gamma(Random(s.in_channels, 4)),
        residual(Random(s.out_height() * s.out_width() * s.out_channels, 5)),
        matrix{weight.data(), DType::kF32, s.out_channels, s.in_channels * slices * 9} {}

  std::vector<float> Reference(bool norm, bool add) const {
    std::vector<float> y(residual.size());
    reference::Conv3x3(shape, matrix, {x.data(), 0, norm ? gamma.data() : nullptr}, bias.data(),
                       add ? residual.data() : nullptr, y.data());
    return y;
  }

  std::vector<float> Run(bool norm, bool add, ThreadPool& pool) const {
    std::vector<float> y(residual.size(), -777.0f);
    Conv3x3Filter filter;
    filter.Set(matrix, shape.in_channels, shape.upsample, pool);
    Conv3x3(shape, filter, {x.data(), 0, norm ? gamma.data() : nullptr},
            {bias.data(), add ? residual.data() : nullptr, y.data(), 0, 0, shape.out_height()}, pool);
    return y;
  }

  Conv3x3Shape shape;
  std::vector<float> x, weight, bias, gamma, residual;
  WeightMatrix matrix;
};

double Rms(const std::vector<float>& v) {
  double sum = 0;
  for (float x : v) sum += static_cast<double>(x) * x;
  return std::sqrt(sum / static_cast<double>(v.size()));
}

// The deviation to expect of rounding, as a share of the outputs' size. Errors of sums grow with the root of
// their length, 128 at most; the transforms add some of their own and amplify both (measured: by 1.5; twice
// that for the points that upsampling takes).
double ErrorShare(const Conv3x3Shape& s) {
  const double longest = std::sqrt(static_cast<double>(std::min<int64_t>(128, s.in_channels)));
  return (s.upsample ? 2 : 1) * (1.5 * longest + 6) * kUnit;
}

//                               in  out  h   w   upsample
const Conv3x3Shape kShapes[] = {{3, 16, 9, 7},         // the encoder's first
                                {16, 3, 8, 11},        // the decoder's last
                                {1, 1, 1, 1},          // only the middle tap is inside
                                {5, 7, 2, 3},          // less than a tile
                                {33, 31, 4, 4},        // one tile, remainders of vectors
                                {96, 50, 13, 5},       // remainders of panels
                                {24, 200, 30, 37},     // several blocks and parts of channels
                                {384, 40, 6, 6},       // the deepest
                                {8, 6, 70, 66},        // blocks of different sizes
                                {1, 1, 1, 1, true},    // the same, upsampled
                                {16, 20, 1, 7, true},  // an odd line: half a tile
                                {7, 33, 5, 2, true},  {48, 24, 17, 19, true}, {384, 192, 7, 6, true}};

TEST(Conv3x3, MatchesReferenceForOddSizes) {
  ForEachTarget([] {
    for (const Conv3x3Shape& s : kShapes) {
      SCOPED_TRACE(::testing::Message() << s.height << "x" << s.width << " " << s.in_channels << "->"
                                        << s.out_channels << (s.upsample ? " upsampled" : ""));
      const Case c(s);
      for (const auto& [norm, add] : {std::pair(false, false), {true, false}, {true, true}}) {
        const std::vector<float> want = c.Reference(norm, add), got = c.Run(norm, add, FourThreads());
        // Outputs at a tile's corner have three times the error of all; five deviations are hardly ever seen.
        const double tolerance = 15 * ErrorShare(s) * Rms(want);
        ExpectNear(got, want, [&](int64_t) { return tolerance; });
      }
    }
  });
}

// Far below the 1e-10 that a layer may deviate from diffusers, at the model's widest layers too, with
// activations of any size, and with a few channels that dwarf the others.
TEST(Conv3x3, KeepsItsAccuracy) {
  ForEachTarget([] {
    for (const bool upsample : {false, true}) {
      for (const float scale : {1e-4f, 1.0f, 1e5f}) {
        Case c({384, 48, 16, 16, upsample}, 1, scale);
        for (size_t i = 0; i < c.x.size(); i += 77) c.x[i] *= 100.0f;
        const double nmse = Nmse(c.Run(false, false, FourThreads()), c.Reference(false, false));
        EXPECT_LE(nmse, std::pow(ErrorShare(c.shape), 2)) << scale << (upsample ? " upsampled" : "");
        EXPECT_LE(nmse, 1e-11);
      }
    }
  });
}

TEST(Conv3x3, DoesNotDependOnThreads) {
  for (const bool upsample : {false, true}) {
    const Case c({40, 130, 35, 31, upsample});
    ForEachTarget([&] { ExpectSame(c.Run(true, true, OneThread()), c.Run(true, true, FourThreads())); });
  }
}

// Rows by and by, from and to pictures of which only some rows are in memory.
TEST(Conv3x3, DoesNotDependOnTheRowsItIsComputedWith) {
  for (const bool upsample : {false, true}) {
    const Case c({20, 24, 29, 30, upsample});
    const int64_t in_line = c.shape.width * c.shape.in_channels;
    const int64_t out_line = c.shape.out_width() * c.shape.out_channels, height = c.shape.out_height();
    ForEachTarget([&] {
      const std::vector<float> want = c.Run(true, true, FourThreads());
      Conv3x3Filter filter;
      filter.Set(c.matrix, c.shape.in_channels, upsample, FourThreads());
      for (int64_t begin = 0, end = 0; begin < height; begin = end) {
        end = std::min(height, begin + (begin == 0 ? 4 : 12));
        const int64_t scale = upsample ? 2 : 1;
        const int64_t first = std::max<int64_t>(0, begin / scale - 1);
        const int64_t last = std::min(c.shape.height, (end + scale - 1) / scale + 1);
        const std::vector<float> x(c.x.begin() + first * in_line, c.x.begin() + last * in_line);
        std::vector<float> y(c.residual.begin() + begin * out_line, c.residual.begin() + end * out_line);
        Conv3x3(c.shape, filter, {x.data(), first, c.gamma.data()},
                {c.bias.data(), y.data(), y.data(), begin, begin, end}, FourThreads());
        ExpectSame(y, {want.begin() + begin * out_line, want.begin() + end * out_line});
      }
    });
  }
}

TEST(Conv3x3, RefusesHalfTiles) {
  const Case c({4, 4, 16, 16});
  Conv3x3Filter filter;
  filter.Set(c.matrix, 4, false, OneThread());
  std::vector<float> y(c.residual.size());
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>(2, 16), {0, 6}}) {
    EXPECT_THROW(Conv3x3(c.shape, filter, {c.x.data()}, {c.bias.data(), nullptr, y.data(), 0, begin, end},
                         OneThread()),
                 Error);
  }
}

TEST(Conv3x3, NormsAsTheNormDoes) {
  const Case c({37, 20, 11, 9});
  ForEachTarget([&] {
    Case normed = c;
    ChannelNorm(Rows(c.x, 11 * 9), c.gamma.data(), Rows(normed.x, 11 * 9), FourThreads());
    Silu(Rows(normed.x), Rows(normed.x), FourThreads());
    ExpectSame(c.Run(true, false, FourThreads()), normed.Run(false, false, FourThreads()));
  });
}

TEST(Conv3x3, TakesTheLastSliceOfAnyTypeOfWeights) {
  const Case c({6, 10, 7, 7}, 3);
  std::vector<uint16_t> halves(c.weight.size());
  std::vector<float> rounded(c.weight.size());
  for (size_t i = 0; i < halves.size(); ++i) {
    halves[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(c.weight[i]) >> 16);
    rounded[i] = std::bit_cast<float>(uint32_t{halves[i]} << 16);
  }
  Case bf16 = c, f32 = c;
  bf16.matrix = {halves.data(), DType::kBF16, 10, 6 * 27};
  f32.matrix = {rounded.data(), DType::kF32, 10, 6 * 27};
  ForEachTarget([&] {
    const std::vector<float> got = bf16.Run(false, false, FourThreads());
    ExpectSame(got, f32.Run(false, false, FourThreads()));
    EXPECT_LE(Nmse(got, f32.Reference(false, false)), std::pow(ErrorShare(c.shape), 2));
  });
}

// The rest of the tile may become NaN too, but nothing beyond it, and no neighbour stays a number.
TEST(Conv3x3, NotANumberReachesItsNeighboursAndTheirTilesOnly) {
  Case c({5, 6, 17, 20});
  c.x[(8 * 20 + 9) * 5 + 2] = std::numeric_limits<float>::quiet_NaN();
  ForEachTarget([&] {
    const std::vector<float> y = c.Run(false, false, FourThreads());
    for (int64_t i = 0; i < 17 * 20; ++i) {
      const int64_t row = i / 20, col = i % 20;
      const bool near = std::abs(row - 8) <= 1 && std::abs(col - 9) <= 1;
      const bool far = row < 4 || row >= 12 || col < 8 || col >= 12;
      EXPECT_TRUE(std::isnan(y[i * 6]) ? !far : !near) << i;
    }
  });
}

}  // namespace
}  // namespace qwen_image
