#include "kernels/rotated_int8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/interface.h"
#include "kernels/testing.h"

namespace qwen_image {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): only in this test
using ::testing::HasSubstr;

// R, entry by entry: in the Kronecker power every pair of digits to the base 4 gives a factor, which is -1/2
// on the second diagonal and 1/2 elsewhere.
std::vector<double> RotationMatrix(int64_t group) {
  std::vector<double> matrix(static_cast<size_t>(group * group));
  for (int64_t row = 0; row < group; ++row) {
    for (int64_t column = 0; column < group; ++column) {
      double entry = 1;
      for (int64_t place = 1; place < group; place *= 4)
        entry *= row / place % 4 + column / place % 4 == 3 ? -0.5 : 0.5;
      matrix[static_cast<size_t>(row * group + column)] = entry;
    }
  }
  return matrix;
}

struct Rotated {
  std::vector<std::byte> q;
  std::vector<float> scales;
  int64_t rows, cols, group;

  WeightMatrix Matrix() const {
    return {.data = q.data() + 1, .rows = rows, .cols = cols, .coding = MakeRotatedInt8Coding(group, scales)};
  }
};

Rotated Make(int64_t rows, int64_t cols, int64_t group, bool a_scale_each) {
  Rotated made{.q = {}, .scales = {}, .rows = rows, .cols = cols, .group = group};
  std::mt19937 engine(3);
  made.q.resize(static_cast<size_t>(rows * cols) + 1);  // from the second on: not aligned
  for (std::byte& value : made.q) value = static_cast<std::byte>(engine());
  std::uniform_real_distribution<float> scale(0.001f, 0.1f);
  for (int64_t r = 0; r < (a_scale_each ? rows : 1); ++r) made.scales.push_back(scale(engine));
  return made;
}

TEST(RotatedInt8, TheTwinsMatrixIsSymmetricAndItsOwnInverse) {
  for (const int64_t group : {4, 16, 64, 256}) {
    const std::vector<double> r = RotationMatrix(group);
    const auto at = [&](int64_t i, int64_t j) { return r[static_cast<size_t>(i * group + j)]; };
    for (int64_t i = 0; i < group; i += 3) {
      for (int64_t j = 0; j < group; ++j) {
        ASSERT_EQ(at(i, j), at(j, i));
        double product = 0;
        for (int64_t k = 0; k < group; ++k) product += at(i, k) * at(k, j);
        ASSERT_EQ(product, i == j ? 1 : 0);
      }
    }
  }
  EXPECT_EQ(RotationMatrix(4),
            (std::vector<double>{.5, .5, .5, -.5, .5, .5, -.5, .5, .5, -.5, .5, .5, -.5, .5, .5, .5}));
}

TEST(RotatedInt8, DecodesToTheProductWithTheMatrix) {
  for (const int64_t group : {4, 16, 64, 256}) {
    for (const bool a_scale_each : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "groups of " << group << (a_scale_each ? ", a scale each" : ""));
      const Rotated made = Make(5, 3 * group, group, a_scale_each);
      const std::vector<double> matrix = RotationMatrix(group);
      const WeightMatrix w = made.Matrix();
      EXPECT_EQ(w.coding->scales_rows(), a_scale_each);
      std::vector<float> got(static_cast<size_t>(made.cols));
      for (int64_t row = 0; row < made.rows; ++row) {
        // In two calls: a reader may begin at any group.
        DecodeRow(w, row, 0, group, got.data());
        DecodeRow(w, row, group, 2 * group, got.data() + group);
        const auto scale = static_cast<double>(made.scales[a_scale_each ? static_cast<size_t>(row) : 0]);
        for (int64_t c = 0; c < made.cols; ++c) {
          double sum = 0;
          for (int64_t k = 0; k < group; ++k) {
            const std::byte q = made.q[static_cast<size_t>(1 + row * made.cols + c / group * group + k)];
            sum += static_cast<double>(std::to_integer<int8_t>(q)) *
                   matrix[static_cast<size_t>(k * group + c % group)];
          }
          ASSERT_EQ(got[static_cast<size_t>(c)], static_cast<float>(scale * sum)) << row << ", " << c;
        }
      }
    }
  }
}

TEST(RotatedInt8, MultipliesLikeItsValues) {
  const Rotated made = Make(37, 768, 256, true);
  const WeightMatrix w = made.Matrix();
  std::vector<float> decoded(static_cast<size_t>(w.rows * w.cols));
  for (int64_t n = 0; n < w.rows; ++n) DecodeRow(w, n, 0, w.cols, decoded.data() + n * w.cols);
  const WeightMatrix plain{decoded.data(), DType::kF32, w.rows, w.cols};
  for (const int64_t tokens : {1, 7, 200}) {
    const std::vector<float> x = Random(tokens * w.cols, 1);
    std::vector<float> want(static_cast<size_t>(tokens * w.rows)), got(want.size(), -777.0f);
    ForEachTarget([&] {
      MatMul(Rows(x, tokens), plain, nullptr, Rows(want, tokens), FourThreads());
      MatMul(Rows(x, tokens), w, nullptr, Rows(got, tokens), FourThreads());
      ExpectSame(got, want);
    });
  }
}

TEST(RotatedInt8, RotatesLikeTheMatrix) {
  for (const int64_t group : {4, 16, 64, 256}) {
    const std::vector<double> matrix = RotationMatrix(group);
    const std::vector<float> x = Random(3 * group, 1);
    ForEachTarget([&] {
      std::vector<float> got = x;
      Rotate(got.data(), 3 * group, group);
      for (int64_t c = 0; c < 3 * group; ++c) {
        double want = 0, size = 0;
        for (int64_t k = 0; k < group; ++k) {
          const double part = static_cast<double>(x[static_cast<size_t>(c / group * group + k)]) *
                              matrix[static_cast<size_t>(k * group + c % group)];
          want += part;
          size += std::abs(part);
        }
        const double divisor = std::sqrt(static_cast<double>(group));
        // Four stages of three roundings each.
        ASSERT_NEAR(got[static_cast<size_t>(c)], divisor * want, 12 * kUnit * divisor * size)
            << group << ", " << c;
      }
    });
  }
}

// What is multiplied with rotated activations: scale · q + bias is the matrix, rotated.
TEST(RotatedInt8, ItsIntegersAreThoseOfTheRotatedMatrix) {
  for (const int64_t group : {16, 64, 256}) {
    const Rotated made = Make(3, 2 * group, group, true);
    const WeightMatrix w = made.Matrix();
    const IntegerForm& form = w.coding->integers();
    ASSERT_EQ(form.rotation, group);
    ASSERT_EQ(form.group, std::min<int64_t>(64, group));
    const int64_t groups = w.cols / form.group;
    std::vector<float> scales(static_cast<size_t>(groups)), biases(scales.size());
    for (int64_t row = 0; row < w.rows; ++row) {
      w.coding->Unpack(w.Units(row * 2), row, row * 2, 2, nullptr, scales.data(), biases.data());
      std::vector<float> rotated(static_cast<size_t>(w.cols));
      for (int64_t c = 0; c < w.cols; ++c) {
        const auto byte = std::to_integer<uint8_t>(w.Units(0)[row * w.cols + c]);
        const auto g = static_cast<size_t>(c / form.group);
        rotated[static_cast<size_t>(c)] = scales[g] * static_cast<float>(byte ^ form.packed.flip) + biases[g];
      }
      Rotate(rotated.data(), w.cols, group);
      std::vector<float> decoded(rotated.size());
      DecodeRow(w, row, 0, w.cols, decoded.data());
      const double largest = 128.0 * static_cast<double>(made.scales[static_cast<size_t>(row)]);
      for (size_t c = 0; c < rotated.size(); ++c)
        ASSERT_NEAR(rotated[c], decoded[c], 64 * kUnit * largest * std::sqrt(static_cast<double>(group)));
    }
  }
  EXPECT_EQ(Make(2, 16, 4, true).Matrix().coding->integers().group, 0) << "too small for the kernels";
}

TEST(RotatedInt8, RefusesGroupsThatNoRotationFits) {
  for (const int64_t group : {4, 16, 64, 256}) EXPECT_EQ(WhyNotRotated(group, 512), "");
  for (const int64_t group : {-256, 0, 1, 2, 8, 32, 128, 255, 512, 1024})
    EXPECT_THAT(WhyNotRotated(group, 4096), HasSubstr("a power of 4")) << group;
  EXPECT_THAT(WhyNotRotated(256, 300), HasSubstr("groups of 256 values, but rows of 300"));
}

}  // namespace
}  // namespace qwen_image
