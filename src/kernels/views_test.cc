// Every kernel on rows that lie apart: the bits are those of dense rows, and what lies between them is
// neither read nor written.
#include <functional>
#include <limits>
#include <span>

#include "kernels/attention_testing.h"
#include "kernels/int8/matmul.h"
#include "kernels/int8/testing.h"
#include "kernels/int8/weights.h"
#include "kernels/interface.h"
#include "kernels/testing.h"

namespace qwen_image {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): only in this test

// Rows with `gap` floats after each one, all of them NaN: a kernel that reads one of them shows it.
class Apart {
 public:
  Apart(const std::vector<float>& values, int64_t rows, int64_t gap)
      : rows_(rows),
        cols_(static_cast<int64_t>(values.size()) / rows),
        stride_(cols_ + gap),
        memory_(static_cast<size_t>(rows * stride_), std::numeric_limits<float>::quiet_NaN()) {
    for (int64_t r = 0; r < rows; ++r) std::copy_n(values.data() + r * cols_, cols_, view().row(r));
  }
  View view() { return {memory_.data(), rows_, cols_, stride_}; }

  // Without the gaps, which must be as they were.
  std::vector<float> Values() {
    std::vector<float> values;
    for (int64_t r = 0; r < rows_; ++r) {
      const float* const row = view().row(r);
      values.insert(values.end(), row, row + cols_);
      for (int64_t i = cols_; i < stride_; ++i) EXPECT_TRUE(std::isnan(row[i])) << "row " << r;
    }
    return values;
  }

 private:
  int64_t rows_, cols_, stride_;
  std::vector<float> memory_;
};

// What a kernel may need beside its views: numbers for every column, and the angles of every token.
struct Others {
  Others(int64_t rows, int64_t heads, int64_t dim)
      : a(Random(heads * dim, 11)),
        b(Random(heads * dim, 12)),
        cos(Random(rows * dim, 13)),
        sin(Random(rows * dim, 14)),
        head_dim(dim) {}
  RopeAngles angles() const { return {cos.data(), sin.data(), head_dim}; }
  std::vector<float> a, b, cos, sin;
  int64_t head_dim;
};

struct RowWise {
  const char* name;
  bool rotates = false;  // heads of an even length
  std::function<void(ConstView u, ConstView v, const Others& o, View y, ThreadPool& pool)> run;
};

using P = ThreadPool;  // or the table below is unreadable
const RowWise kRowWise[] = {
    {"LayerNorm", false,
     [](ConstView u, ConstView, const Others&, View y, P& p) { LayerNorm(u, 1e-6f, y, p); }},
    {"LayerNorm with weight and bias", false,
     [](ConstView u, ConstView, const Others& o, View y, P& p) {
       LayerNorm(u, o.a.data(), o.b.data(), 1e-6f, y, p);
     }},
    {"RmsNorm", false,
     [](ConstView u, ConstView, const Others& o, View y, P& p) { RmsNorm(u, o.a.data(), 1e-6f, y, p); }},
    {"RmsNormHeads", false,
     [](ConstView, ConstView, const Others& o, View y, P& p) {
       RmsNormHeads(y, o.a.data(), o.head_dim, 1e-6f, p);
     }},
    {"ChannelNorm", false,
     [](ConstView u, ConstView, const Others& o, View y, P& p) { ChannelNorm(u, o.a.data(), y, p); }},
    {"Modulate", false,
     [](ConstView u, ConstView, const Others& o, View y, P& p) {
       Modulate(u, o.a.data(), o.b.data(), y, p);
     }},
    {"LayerNormModulate", false,
     [](ConstView u, ConstView, const Others& o, View y, P& p) {
       LayerNormModulate(u, 1e-6f, o.a.data(), o.b.data(), y, p);
     }},
    {"AddGated", false,
     [](ConstView u, ConstView, const Others& o, View y, P& p) { AddGated(u, o.a.data(), y, p); }},
    {"Add", false, [](ConstView u, ConstView v, const Others&, View y, P& p) { Add(u, v, y, p); }},
    {"Silu", false, [](ConstView u, ConstView, const Others&, View y, P& p) { Silu(u, y, p); }},
    {"SiluMul", false, [](ConstView u, ConstView v, const Others&, View y, P& p) { SiluMul(u, v, y, p); }},
    {"GeluTanh", false, [](ConstView u, ConstView, const Others&, View y, P& p) { GeluTanh(u, y, p); }},
    {"Gelu", false, [](ConstView u, ConstView, const Others&, View y, P& p) { Gelu(u, y, p); }},
    {"RopeInterleaved", true,
     [](ConstView, ConstView, const Others& o, View y, P& p) { RopeInterleaved(y, o.angles(), p); }},
    {"RmsNormRope", true,
     [](ConstView, ConstView, const Others& o, View y, P& p) {
       RmsNormRope(y, o.a.data(), 1e-6f, o.angles(), p);
     }},
    {"RopeHalves", true,
     [](ConstView, ConstView, const Others& o, View y, P& p) { RopeHalves(y, o.angles(), p); }},
    {"RmsNormRopeHalves", true,
     [](ConstView, ConstView, const Others& o, View y, P& p) {
       RmsNormRopeHalves(y, o.a.data(), 1e-6f, o.angles(), p);
     }},
};

void ExpectSameApart(const RowWise& kernel, int64_t rows, int64_t heads, int64_t head_dim) {
  SCOPED_TRACE(::testing::Message() << kernel.name << ", " << rows << " rows of " << heads << " x "
                                    << head_dim);
  const int64_t size = rows * heads * head_dim;
  const std::vector<float> u = Random(size, 1), v = Random(size, 2), before = Random(size, 3);
  const Others others(rows, heads, head_dim);
  std::vector<float> dense = before;
  kernel.run(Rows(u, rows), Rows(v, rows), others, Rows(dense, rows), OneThread());
  // All apart, and each one alone beside dense ones.
  for (int apart = 1; apart < 8; ++apart) {
    SCOPED_TRACE(apart);
    Apart u_apart(u, rows, apart & 1 ? 3 : 0), v_apart(v, rows, apart & 2 ? 8 : 0),
        y(before, rows, apart & 4 ? 5 : 0);
    kernel.run(u_apart.view(), v_apart.view(), others, y.view(), FourThreads());
    ExpectSame(y.Values(), dense);
  }
}

TEST(Views, RowWiseKernelsHaveTheSameBits) {
  ForEachTarget([] {
    for (const RowWise& kernel : kRowWise) {
      if (!kernel.rotates) {
        for (const auto& [rows, heads, head_dim] :
             {std::array<int64_t, 3>{1, 1, 1}, {3, 1, 5}, {7, 5, 5}, {9, 1, 131}, {70, 3, 343}})
          ExpectSameApart(kernel, rows, heads, head_dim);
      }
      for (const auto& [rows, heads, head_dim] :
           {std::array<int64_t, 3>{1, 1, 2}, {3, 2, 24}, {5, 3, 6}, {70, 9, 130}})
        ExpectSameApart(kernel, rows, heads, head_dim);
    }
  });
}

// A slice of heads is a view like any other.
TEST(Views, ColumnsOfAMatrixAreAMatrix) {
  const int64_t rows = 9, heads = 5, head_dim = 26;
  const std::vector<float> x = Random(rows * heads * head_dim, 1);
  const Others others(rows, 1, head_dim);
  ForEachTarget([&] {
    std::vector<float> whole = x, slices = x;
    RmsNormRope(Rows(whole, rows), others.a.data(), 1e-6f, others.angles(), FourThreads());
    for (int64_t head = 0; head < heads; ++head) {
      RmsNormRope(Rows(slices, rows).Cols(head * head_dim, head_dim), others.a.data(), 1e-6f, others.angles(),
                  FourThreads());
    }
    ExpectSame(slices, whole);
  });
}

TEST(Views, ProductsHaveTheSameBits) {
  const int64_t sizes[][3] = {{1, 1, 1}, {5, 17, 24}, {13, 300, 33}, {147, 515, 70}, {1200, 9, 100}};
  ForEachTarget([&] {
    for (const auto& [rows, depth, cols] : sizes) {
      SCOPED_TRACE(::testing::Message() << rows << " x " << depth << " x " << cols);
      const std::vector<float> x = Random(rows * depth, 1), weights = Random(cols * depth, 2),
                               bias = Random(cols, 3), before = Random(rows * cols, 4);
      const WeightMatrix w = {weights.data(), DType::kF32, cols, depth};
      std::vector<float> product = before, sum = before;
      MatMul(Rows(x, rows), w, bias.data(), Rows(product, rows), OneThread());
      AddMatMul(Rows(x, rows), w, Rows(sum, rows), OneThread());
      Apart x_apart(x, rows, 7), product_apart(before, rows, 3), sum_apart(before, rows, 1);
      MatMul(x_apart.view(), w, bias.data(), product_apart.view(), FourThreads());
      AddMatMul(x_apart.view(), w, sum_apart.view(), FourThreads());
      ExpectSame(product_apart.Values(), product);
      ExpectSame(sum_apart.Values(), sum);
    }
  });
}

TEST(Views, AttentionHasTheSameBits) {
  const AttentionCase cases[] = {Dense(1, 1, 1, 1, 3), Dense(49, 300, 2, 1, 32), Dense(17, 33, 4, 2, 81),
                                 Dense(151, 151, 3, 3, 24, true)};
  ForEachTarget([&] {
    for (const AttentionCase& c : cases) {
      SCOPED_TRACE(::testing::Message() << c.queries << " queries, " << c.keys << " keys");
      const AttentionInputs in(c);
      std::vector<float> out(in.q.size());
      std::vector<float> weights(static_cast<size_t>(c.shape.heads * c.queries * c.keys)),
          weights_apart(weights.size());
      std::vector<float> entropy(static_cast<size_t>(c.shape.heads)), entropy_apart(entropy.size());
      Attention(in.queries(), in.keys(), in.values(), c.shape, Rows(out, c.queries), OneThread());
      AttentionWeights(in.queries(), in.keys(), c.shape, weights.data(), OneThread());
      AttentionEntropy(in.queries(), in.keys(), c.shape, 7, entropy.data(), OneThread());

      Apart q(in.q, c.queries, 5), k(in.k, c.keys, 3), v(in.v, c.keys, 11), y(out, c.queries, 2);
      Attention(q.view(), k.view(), v.view(), c.shape, y.view(), FourThreads());
      AttentionWeights(q.view(), k.view(), c.shape, weights_apart.data(), FourThreads());
      AttentionEntropy(q.view(), k.view(), c.shape, 7, entropy_apart.data(), FourThreads());
      ExpectSame(y.Values(), out);
      ExpectSame(weights_apart, weights);
      ExpectSame(entropy_apart, entropy);
    }
  });
}

TEST(Views, ProductsInEightBitsHaveTheSameBits) {
  const int64_t depth = 128;
  ForEachTarget([&] {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1}, {13, 37}, {150, 65}}) {
      SCOPED_TRACE(::testing::Message() << rows << " x " << cols);
      const std::vector<float> x = Random(rows * depth, 1), before = Random(rows * cols, 2),
                               gate = Random(cols, 3);
      const Weights w = MlxWeights(cols, depth, 4, 64);
      Int8Activations quantized;
      quantized.Quantize(
          rows, depth, 64, Int8Fineness::kWhereNeeded,
          [&, rows = rows](int64_t row, float*) { return Rows(x, rows).row(row); }, FourThreads());
      for (const Int8Product& kind : {Int8Product{}, Int8Product{.gelu = true},
                                      Int8Product{.gate = gate.data()}, Int8Product{.add = true}}) {
        Int8Product product = kind;
        product.x = &quantized;
        product.w = &w.matrix;
        std::vector<float> dense = before;
        Apart y(before, rows, 3);
        product.y = Rows(dense, rows);
        Int8MatMul({&product, 1}, OneThread());
        product.y = y.view();
        Int8MatMul({&product, 1}, FourThreads());
        ExpectSame(y.Values(), dense);
      }
    }
  });
}

}  // namespace
}  // namespace qwen_image
