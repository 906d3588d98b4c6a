#include <limits>

#include "kernels/interface.h"
#include "kernels/reference.h"
#include "kernels/testing.h"

namespace qwen_image {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): only in this test

// A random matrix in the given type, `shift` bytes off a 64-byte boundary.
class Weights {
 public:
  Weights(int64_t rows, int64_t cols, DType dtype, size_t shift = 0) {
    const std::vector<float> values = Random(rows * cols, 7);
    bytes_.resize(values.size() * SizeOf(dtype) + shift);
    for (size_t i = 0; i < values.size(); ++i) {
      unsigned char* to = bytes_.data() + shift + i * SizeOf(dtype);
      const auto bits = std::bit_cast<uint32_t>(values[i]);
      // Any 16 bits with a middling exponent do: what counts is that both kernels read them alike.
      const auto half = static_cast<uint16_t>(
          dtype == DType::kBF16 ? bits >> 16 : (bits >> 16 & 0x8000) | (0x3000 + (bits >> 8 & 0x0fff)));
      if (dtype == DType::kF32) {
        std::memcpy(to, &bits, 4);
      } else {
        std::memcpy(to, &half, 2);
      }
    }
    matrix_ = {bytes_.data() + shift, dtype, rows, cols};
  }
  const WeightMatrix& matrix() const { return matrix_; }
  unsigned char* element(int64_t i) {
    return bytes_.data() + bytes_.size() -
           static_cast<size_t>(matrix_.rows * matrix_.cols - i) * SizeOf(matrix_.dtype);
  }

 private:
  std::vector<unsigned char> bytes_;
  WeightMatrix matrix_;
};

std::vector<float> Multiply(const std::vector<float>& x, int64_t rows, const WeightMatrix& w,
                            const float* bias, ThreadPool& pool = FourThreads()) {
  std::vector<float> y(static_cast<size_t>(rows * w.rows), -777.0f);
  MatMul(Rows(x, rows), w, bias, Rows(y, rows), pool);
  return y;
}

// A sum of n products rounds by about √n units of Σ|x·w| (Higham & Mary 2019); the blocks of 256 make it
// less.
void ExpectRight(int64_t rows, int64_t depth, int64_t cols, DType dtype, size_t shift, bool with_bias) {
  SCOPED_TRACE(::testing::Message() << rows << " x " << depth << " x " << cols << " " << NameOf(dtype));
  const std::vector<float> x = Random(rows * depth, 1);
  const std::vector<float> bias = Random(cols, 2);
  const float* b = with_bias ? bias.data() : nullptr;
  const Weights weights(cols, depth, dtype, shift);
  const WeightMatrix& w = weights.matrix();
  std::vector<float> want(static_cast<size_t>(rows * cols));
  reference::MatMul(Rows(x, rows), w, b, Rows(want, rows));
  std::vector<float> values(static_cast<size_t>(cols * depth));
  ConvertToFloat(w.data, dtype, cols * depth, values.data());
  const double n = std::sqrt(static_cast<double>(std::min<int64_t>(depth, 256) + depth / 256 + 2));
  ExpectNear(Multiply(x, rows, w, b), want, [&](int64_t i) {
    double magnitude = std::abs(bias[i % cols]);
    for (int64_t k = 0; k < depth; ++k) {
      magnitude += std::abs(static_cast<double>(x[i / cols * depth + k]) * values[i % cols * depth + k]);
    }
    return 2 * n * kUnit * magnitude;
  });
}

TEST(MatMul, MatchesReferenceForOddSizes) {
  const int64_t sizes[][3] = {
      {1, 1, 1},     {1, 64, 128},   {2, 5, 3},     {3, 24, 80},    {5, 17, 24},
      {6, 256, 16},  {7, 257, 17},   {11, 255, 31}, {12, 300, 33},  {13, 80, 5},
      {23, 64, 300}, {60, 128, 64},  {145, 33, 49}, {147, 515, 70}, {300, 20, 257},
      {1, 700, 513}, {1200, 9, 100}, {150, 5, 1700}};  // in parts of the rows; in strips of different widths
  ForEachTarget([&] {
    for (const auto& s : sizes) {
      for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
        ExpectRight(s[0], s[1], s[2], dtype, 0, true);
    }
    ExpectRight(9, 50, 40, DType::kF32, 0, false);
  });
}

TEST(MatMul, ReadsUnalignedWeights) {
  ForEachTarget([] {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (size_t shift : {1, 2, 3}) ExpectRight(7, 39, 35, dtype, shift, true);
    }
  });
}

TEST(MatMul, DoesNotDependOnThreads) {
  const int64_t rows = 310, depth = 530, cols = 520;
  const std::vector<float> x = Random(rows * depth, 3);
  const Weights weights(cols, depth, DType::kBF16);
  ForEachTarget([&] {
    ExpectSame(Multiply(x, rows, weights.matrix(), nullptr, OneThread()),
               Multiply(x, rows, weights.matrix(), nullptr, FourThreads()));
  });
}

TEST(MatMul, RowDoesNotDependOnItsBatch) {
  const int64_t rows = 155, depth = 530, cols = 70;
  const std::vector<float> x = Random(rows * depth, 4);
  const std::vector<float> bias = Random(cols, 5);
  const Weights weights(cols, depth, DType::kF16);
  ForEachTarget([&] {
    const std::vector<float> batch = Multiply(x, rows, weights.matrix(), bias.data());
    for (int64_t r = 0; r < rows; r += 7) {
      const std::vector<float> row(x.begin() + r * depth, x.begin() + (r + 1) * depth);
      const std::vector<float> alone = Multiply(row, 1, weights.matrix(), bias.data());
      ExpectSame(alone, std::vector<float>(batch.begin() + r * cols, batch.begin() + (r + 1) * cols));
    }
  });
}

TEST(AddMatMul, AddsTheProductToWhatIsThere) {
  const int64_t sizes[][3] = {{1, 1, 1}, {5, 3, 40}, {147, 515, 70}, {300, 4, 257}};
  for (const auto& s : sizes) {
    const int64_t rows = s[0], depth = s[1], cols = s[2];
    SCOPED_TRACE(::testing::Message() << rows << " x " << depth << " x " << cols);
    const std::vector<float> x = Random(rows * depth, 8), before = Random(rows * cols, 9);
    const Weights weights(cols, depth, DType::kBF16);
    std::vector<float> want = before;
    reference::AddMatMul(Rows(x, rows), weights.matrix(), Rows(want, rows));
    ForEachTarget([&] {
      std::vector<float> got = before, alone = before;
      AddMatMul(Rows(x, rows), weights.matrix(), Rows(got, rows), FourThreads());
      AddMatMul(Rows(x, rows), weights.matrix(), Rows(alone, rows), OneThread());
      ExpectSame(got, alone);
      const auto n = static_cast<double>(depth) + 2;  // sums of |x·w| stay below 4 n
      ExpectNear(got, want, [&](int64_t) { return 2 * std::sqrt(n) * kUnit * 4 * n; });
    });
  }
}

TEST(MatMul, NotANumberStaysInItsRowAndColumn) {
  const int64_t rows = 19, depth = 70, cols = 37;
  for (float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> x = Random(rows * depth, 6);
    x[8 * depth + 69] = poison;
    Weights weights(cols, depth, DType::kF32);
    std::memcpy(weights.element(21 * depth + 3), &poison, 4);
    ForEachTarget([&] {
      const std::vector<float> y = Multiply(x, rows, weights.matrix(), nullptr);
      for (int64_t i = 0; i < rows * cols; ++i) {
        EXPECT_EQ(std::isfinite(y[i]), i / cols != 8 && i % cols != 21)
            << "row " << i / cols << " column " << i % cols;
      }
    });
  }
}

TEST(InstructionSet, FollowsTheChoice) {
  ForEachTarget([] { EXPECT_EQ(InstructionSet(), hwy::TargetName(hwy::SupportedTargets())); });
}

}  // namespace
}  // namespace qwen_image
