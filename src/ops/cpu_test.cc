// The operations of the CPU give the same bits with any listener, and however their arrays lie in memory.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "kernels/int8/attention.h"
#include "ops/testing.h"

namespace qwen_image {
namespace {

using testing::OpCase;
using testing::OpCases;
using testing::TestLayers;

class Listener : public CheckpointSink {
 public:
  // With no name given: to everything.
  explicit Listener(std::string only = "") : only_(std::move(only)) {}
  bool Wants(std::string_view name) const override { return only_.empty() || name == only_; }
  void OnCheckpoint(const std::string& name, const CheckpointView&) override { heard.insert(name); }

  std::set<std::string> heard;

 private:
  const std::string only_;
};

std::vector<Tensor> RunCase(const OpCase& c, CheckpointSink* sink = nullptr, int threads = 2,
                            int64_t band_floats = 8 << 20) {
  ThreadPool pool(threads);
  const CancelFlag never;
  const Compute compute{pool, never};
  const std::unique_ptr<Ops> ops = CpuBackend(band_floats)->Start(compute);
  return c.run(*ops, sink ? Tap(sink) : Tap());
}

bool SameBits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.data(), b.data(), static_cast<size_t>(b.size()) * 4) == 0;
}

void ExpectSameBits(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(SameBits(got[i], want[i])) << "result " << i;
}

class CpuOpsTest : public ::testing::TestWithParam<TestLayers::Kind> {
 protected:
  TestLayers layers_{GetParam()};
};

TEST_P(CpuOpsTest, WhoeverListensChangesNoBits) {
  for (const OpCase& c : OpCases(layers_)) {
    SCOPED_TRACE(c.name);
    const std::vector<Tensor> want = RunCase(c);
    Listener to_all;
    ExpectSameBits(RunCase(c, &to_all), want);
    for (const std::string& name : to_all.heard) {
      SCOPED_TRACE(name);
      Listener to_one(name);
      ExpectSameBits(RunCase(c, &to_one), want);
      EXPECT_EQ(to_one.heard, std::set{name});
    }
  }
}

TEST_P(CpuOpsTest, ThreadsAndBandsChangeNoBits) {
  for (const OpCase& c : OpCases(layers_)) {
    SCOPED_TRACE(c.name);
    const std::vector<Tensor> want = RunCase(c);
    ExpectSameBits(RunCase(c, nullptr, 1), want);
    ExpectSameBits(RunCase(c, nullptr, 5, 1), want);
  }
}

// Operations do not touch the memory around a view.
TEST_P(CpuOpsTest, AViewHasTheBitsOfACopy) {
  const Linear& layer = layers_.Get(48, 64);
  const Tensor wide = testing::RandomTensor({7, 128}, 1);
  ThreadPool pool(2);
  const CancelFlag never;
  const Compute compute{pool, never};
  const std::unique_ptr<Ops> ops = CpuBackend()->Start(compute);
  const Array x = ops->Cols(ops->FromHost(wide), 32, 64);
  const Array copy = ops->FromHost(ops->ToHost(x));
  Array memory = ops->New({7, 100}), dense = ops->New({7, 48});
  std::fill_n(memory.view.data, memory.view.size(), 77.0f);
  Array y = ops->Cols(memory, 26, 48);
  ops->Multiply(layer, x, y);
  ops->Multiply(layer, copy, dense);
  for (int64_t row = 0; row < 7; ++row) {
    for (int64_t col = 0; col < 100; ++col) {
      const bool inside = col >= 26 && col < 74;
      EXPECT_EQ(memory.view.row(row)[col], inside ? dense.view.row(row)[col - 26] : 77.0f)
          << row << " " << col;
    }
  }
}

// What is fused into an operation is what the operation of that name computes.
TEST_P(CpuOpsTest, FusedNormsAreTheNormsThemselves) {
  const std::vector<float> weight = testing::Random(64, 1), bias = testing::Random(64, 2);
  const std::vector<float> head_weight = testing::Random(8, 3);
  const Linear& layer = layers_.Get(48, 64);
  ThreadPool pool(2);
  const CancelFlag never;
  const Compute compute{pool, never};
  const std::unique_ptr<Ops> ops = CpuBackend()->Start(compute);
  const Tensor values = testing::RandomTensor({1, 7, 64}, 4);

  Array x = ops->FromHost(values), fused = ops->New({1, 7, 48}), apart = ops->New({1, 7, 48});
  const Projection projection{.x = &x,
                              .norm = {Norm::Kind::kLayer, 1e-6f, &weight, "norm", &bias},
                              .products = {{&layer, "product", &fused}}};
  ops->Project({&projection, 1}, Tap());
  ops->LayerNorm(weight, bias, 1e-6f, x);
  ops->Multiply(layer, x, apart);
  std::vector<Tensor> got, want;
  got.push_back(ops->ToHost(fused));
  want.push_back(ops->ToHost(apart));

  const Rope rope = testing::RandomRope(*ops, 7, 4);
  Array rotated = ops->FromHost(values), heads = ops->FromHost(values);
  const NormRope input{&rotated, &head_weight, 1e-6f, &rope, "norm", "rope", NormRope::Pairs::kHalves};
  ops->NormAndRotate({&input, 1}, Tap());
  Array each = ops->Reshaped(heads, {56, 8});
  ops->RmsNorm(head_weight, 1e-6f, each);
  heads = ops->Reshaped(each, {1, 7, 64});
  ops->RotateHalves(rope, heads);
  got.push_back(ops->ToHost(rotated));
  want.push_back(ops->ToHost(heads));
  ExpectSameBits(got, want);
}

struct FoldingCase {
  int64_t large, small, side, frames;
};
// The published VAE's kinds, then channels that share values of two others, and such as get zeros only.
constexpr FoldingCase kFoldings[] = {{6, 6, 2, 1}, {3, 6, 2, 2}, {4, 4, 1, 1},  {5, 5, 2, 2}, {3, 6, 2, 1},
                                     {3, 2, 2, 2}, {4, 6, 1, 3}, {2, 16, 2, 2}, {9, 2, 4, 1}, {6, 3, 1, 1}};

// A video whose last frame is the picture: values[channel][frame][row][column], as torch's view and permute
// have them, and which of the small channels each belongs to.
template <typename Visit>
void ForEachOfVideo(const FoldingCase& c, const Visit& visit) {
  const int64_t share = c.large * c.frames * c.side * c.side / c.small;
  int64_t i = 0;
  for (int64_t channel = 0; channel < c.large; ++channel) {
    for (int64_t frame = 0; frame < c.frames; ++frame) {
      for (int64_t row = 0; row < c.side; ++row) {
        for (int64_t col = 0; col < c.side; ++col, ++i)
          visit(channel, frame + 1 == c.frames, row, col, i / share);
      }
    }
  }
}

TEST(Folding, SmallPicturesHoldTheMeansOfAVideosLastFrame) {
  ThreadPool pool(2);
  const CancelFlag never;
  const Compute compute{pool, never};
  const std::unique_ptr<Ops> ops = CpuBackend()->Start(compute);
  for (const FoldingCase& c : kFoldings) {
    SCOPED_TRACE(c.large * 1000 + c.small);
    const int64_t height = 3, width = 5;
    const Tensor x = testing::RandomTensor({height * c.side, width * c.side, c.large}, 1);
    const Tensor got =
        ops->ToHost(ops->FoldedMeans({.side = c.side, .frames = c.frames}, ops->FromHost(x), c.small));
    ASSERT_EQ(got.shape(), (Shape{height, width, c.small}));
    const double share = static_cast<double>(c.large * c.frames * c.side * c.side / c.small);
    for (int64_t pixel = 0; pixel < height * width; ++pixel) {
      std::vector<double> want(static_cast<size_t>(c.small));
      ForEachOfVideo(c, [&](int64_t channel, bool last, int64_t row, int64_t col, int64_t small) {
        const int64_t y = pixel / width * c.side + row, at = pixel % width * c.side + col;
        if (last)
          want[static_cast<size_t>(small)] += x[(y * width * c.side + at) * c.large + channel] / share;
      });
      for (int64_t i = 0; i < c.small; ++i)
        ASSERT_NEAR(got[pixel * c.small + i], want[static_cast<size_t>(i)], 1e-6) << pixel << " " << i;
    }
  }
}

TEST(Folding, LargePicturesGetEveryChannelForAllItsValues) {
  ThreadPool pool(2);
  const CancelFlag never;
  const Compute compute{pool, never};
  const std::unique_ptr<Ops> ops = CpuBackend()->Start(compute);
  for (const FoldingCase& c : kFoldings) {
    SCOPED_TRACE(c.large * 1000 + c.small);
    const int64_t height = 3, width = 5;
    const Tensor x = testing::RandomTensor({height, width, c.small}, 1),
                 before = testing::RandomTensor({height * c.side, width * c.side, c.large}, 2);
    Array sum = ops->FromHost(before);
    ops->AddUnfolded({.side = c.side, .frames = c.frames}, ops->FromHost(x), sum, "unfolded", {});
    const Tensor got = ops->ToHost(sum);
    for (int64_t pixel = 0; pixel < height * width; ++pixel) {
      ForEachOfVideo(c, [&](int64_t channel, bool last, int64_t row, int64_t col, int64_t small) {
        const int64_t y = pixel / width * c.side + row, at = pixel % width * c.side + col;
        const int64_t value = (y * width * c.side + at) * c.large + channel;
        if (!last) return;
        ASSERT_EQ(got[value], before[value] + x[pixel * c.small + small]) << value;
      });
    }
  }
}

// Weights in a rotated basis need rotated activations.
TEST(CpuOps, MultipliesRotatedWeightsIn8Bits) {
  TestLayers layers(TestLayers::Kind::kRotated);
  Linear layer = layers.Get(48, 64);
  ASSERT_EQ(layer.int8_group, 16);
  const Tensor x = testing::RandomTensor({1, 70, 64}, 1);
  ThreadPool pool(2);
  const CancelFlag never;
  const Compute compute{pool, never};
  const auto product = [&] {
    const std::unique_ptr<Ops> ops = CpuBackend()->Start(compute);
    Array y = ops->New({1, 70, 48});
    ops->Multiply(layer, ops->FromHost(x), y);
    return ops->ToHost(y);
  };
  const Tensor in_8_bits = product();
  layer.int8_group = 0;
  const Tensor exact = product();
  double error = 0, power = 0;
  for (int64_t i = 0; i < exact.size(); ++i) {
    error += std::pow(static_cast<double>(in_8_bits[i]) - static_cast<double>(exact[i]), 2);
    power += std::pow(static_cast<double>(exact[i]), 2);
  }
  EXPECT_GT(error, 0);
  EXPECT_LE(error, 1e-4 * power);
}

TEST(CpuOps, AttendsIn8BitsWhereItMay) {
  constexpr int64_t kTokens = 300, kHeads = 2, kHeadDim = 32, kCols = kHeads * kHeadDim;
  const Tensor q = testing::RandomTensor({1, kTokens, kCols}, 1),
               k = testing::RandomTensor({1, kTokens, kCols}, 2),
               v = testing::RandomTensor({1, kTokens, kCols}, 3);
  ThreadPool pool(2);
  const CancelFlag never;
  const Compute compute{pool, never};
  const std::unique_ptr<Ops> ops = CpuBackend()->Start(compute);
  const auto attend = [&](bool int8, bool causal) {
    const Joint qs{ops->FromHost(q)}, ks{ops->FromHost(k)}, vs{ops->FromHost(v)};
    Joint out{ops->New({1, kTokens, kCols})};
    ops->Attend({.q = &qs,
                 .k = &ks,
                 .v = &vs,
                 .heads = kHeads,
                 .kv_heads = kHeads,
                 .head_dim = kHeadDim,
                 .causal = causal,
                 .int8 = int8},
                out, Tap());
    return ops->ToHost(out[0]);
  };
  const auto view = [](const Tensor& x) { return ConstView(x.data(), kTokens, kCols); };
  const AttentionShape shape{kHeads, kHeads, kHeadDim};
  ASSERT_TRUE(FitsInt8Attention(shape, kTokens, kTokens));
  Tensor in_8_bits({1, kTokens, kCols});
  Int8Attention(view(q), view(k), view(v), shape, {in_8_bits.data(), kTokens, kCols}, pool);
  EXPECT_TRUE(SameBits(attend(true, false), in_8_bits));
  EXPECT_FALSE(SameBits(attend(false, false), in_8_bits));
  EXPECT_TRUE(SameBits(attend(true, true), attend(false, true))) << "not where a query sees only some keys";
}

std::string KindName(const ::testing::TestParamInfo<TestLayers::Kind>& info) {
  constexpr const char* kNames[] = {"Plain", "PlainWithLora", "Int8", "Int8WithLora", "Rotated"};
  return kNames[static_cast<size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Layers, CpuOpsTest,
                         ::testing::Values(TestLayers::Kind::kPlain, TestLayers::Kind::kPlainWithLora,
                                           TestLayers::Kind::kInt8, TestLayers::Kind::kInt8WithLora,
                                           TestLayers::Kind::kRotated),
                         KindName);

}  // namespace
}  // namespace qwen_image
