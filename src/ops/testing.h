// Every operation once, as tests of devices call it: the same inputs on each of them.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "kernels/int8/testing.h"
#include "kernels/rotated_int8.h"
#include "ops/interface.h"

namespace qwen_image::testing {

inline Tensor RandomTensor(const Shape& shape, uint32_t seed, float scale = 1.0f) {
  const std::vector<float> values = Random(ElementCount(shape), seed, scale);
  Tensor tensor(shape);
  std::copy(values.begin(), values.end(), tensor.data());
  return tensor;
}

// Layers of one kind, which live as long as this.
class TestLayers {
 public:
  enum class Kind { kPlain, kPlainWithLora, kInt8, kInt8WithLora, kRotated };
  explicit TestLayers(Kind kind) : kind_(kind) {}

  const Linear& Get(int64_t out, int64_t in) {
    const auto seed = static_cast<uint32_t>(layers_.size());
    Linear& layer = layers_.emplace_back();
    if (kind_ != Kind::kPlain && kind_ != Kind::kPlainWithLora) {
      layer.weight = kind_ == Kind::kRotated ? Rotated(out, in, seed)
                                             : int8_.emplace_back(MlxWeights(out, in, 4, 32)).matrix;
      layer.precision = Precision::kFast;
      layer.int8_group = Int8GroupOf(layer.weight);
    } else {
      layer.weight = Plain(out, in, 100 + seed);
    }
    layer.bias = Random(out, 200 + seed);
    if (kind_ == Kind::kPlainWithLora || kind_ == Kind::kInt8WithLora) {
      layer.updates = {{Plain(3, in, 300 + seed), Plain(out, 3, 400 + seed), 0.5f},
                       {Plain(2, in, 500 + seed), Plain(out, 2, 600 + seed), -0.25f}};
    }
    return layer;
  }

 private:
  WeightMatrix Plain(int64_t rows, int64_t cols, uint32_t seed) {
    const std::vector<float>& values = floats_.emplace_back(Random(rows * cols, seed, 0.2f));
    return {values.data(), DType::kF32, rows, cols};
  }

  WeightMatrix Rotated(int64_t rows, int64_t cols, uint32_t seed) {
    const std::vector<std::byte>& q =
        bytes_.emplace_back(RandomBytes(static_cast<size_t>(rows * cols), seed));
    return {q.data(), DType::kF32, rows, cols,
            MakeRotatedInt8Coding(16, std::vector<float>(static_cast<size_t>(rows), 0.01f))};
  }

  const Kind kind_;
  std::deque<Linear> layers_;
  std::deque<std::vector<std::byte>> bytes_;
  std::deque<Weights> int8_;
  std::deque<std::vector<float>> floats_;
};

// One call, or a few: what it computes.
struct OpCase {
  std::string name;
  std::function<std::vector<Tensor>(Ops& ops, const Tap& tap)> run;
};

inline constexpr int64_t kOpTokens[] = {5, 9};  // of two streams
inline constexpr int64_t kOpDim = 64;

// norm, modulation and products of two streams: the first has one span of rows, the second two.
enum class TestModulation { kYes, kNo };
struct TestNorm {
  Norm::Kind kind = Norm::Kind::kNone;
  bool affine = false;  // a layer norm with weight and bias
};
inline OpCase ProjectCase(const std::string& name, TestLayers& layers, TestNorm norm, Activation activation,
                          TestModulation modulation = TestModulation::kYes) {
  struct Stream {
    Tensor x, mod;
    std::vector<const Linear*> layers;
  };
  auto streams = std::make_shared<std::vector<Stream>>();
  for (uint32_t i = 0; i < 2; ++i) {
    streams->push_back({RandomTensor({1, kOpTokens[i], kOpDim}, 10 + i),
                        RandomTensor({static_cast<int64_t>(1 + i), 3 * kOpDim}, 20 + i),
                        {&layers.Get(96, kOpDim), &layers.Get(48, kOpDim)}});
  }
  return {name, [streams, norm, activation, modulation](Ops& ops, const Tap& tap) {
            std::vector<Array> x, mod, y;
            for (const Stream& stream : *streams) {
              x.push_back(ops.FromHost(stream.x));
              mod.push_back(ops.FromHost(stream.mod));
              for (const Linear* layer : stream.layers)
                y.push_back(ops.New({1, stream.x.dim(1), layer->weight.rows}));
            }
            static const std::vector<float> kWeight = Random(kOpDim, 30), kBias = Random(kOpDim, 33);
            std::vector<Projection> projections;
            static const char* const kNames[2][5] = {{"norm0", "mod0", "a0", "b0", "act0"},
                                                     {"norm1", "mod1", "a1", "b1", "act1"}};
            for (size_t i = 0; i < 2; ++i) {
              Projection p;
              p.x = &x[i];
              p.norm = {norm.kind, 1e-6f, &kWeight, norm.kind == Norm::Kind::kNone ? nullptr : kNames[i][0],
                        norm.affine ? &kBias : nullptr};
              if (modulation == TestModulation::kYes) {
                p.modulation.values = &mod[i];
                p.modulation.shift = 0;
                p.modulation.scale = 1;
                p.modulation.spans = {{0, kOpTokens[i], 0}};
                if (i == 1) p.modulation.spans = {{0, 4, 0}, {4, kOpTokens[i] - 4, 1}};
                p.modulated = kNames[i][1];
              }
              p.products = {{(*streams)[i].layers[0], kNames[i][2], &y[2 * i]},
                            {(*streams)[i].layers[1], kNames[i][3], &y[2 * i + 1]}};
              p.activation = activation;
              projections.push_back(p);
            }
            ops.Project(projections, tap);
            std::vector<Tensor> results;
            for (const Array& array : y) results.push_back(ops.ToHost(array));
            return results;
          }};
}

// The end of a branch: with a gate for each of two spans of rows, with one gate, or with none.
inline OpCase AddProjectedCase(const std::string& name, TestLayers& layers, bool by_row) {
  const Linear *gated = &layers.Get(kOpDim, 96), *plain = &layers.Get(kOpDim, 96);
  return {name, [gated, plain, by_row](Ops& ops, const Tap& tap) {
            const int64_t rows = kOpTokens[1];
            const Array x = ops.FromHost(RandomTensor({1, rows, 96}, 1));
            const Array mod = ops.FromHost(RandomTensor({2, 3 * kOpDim}, 2));
            Array first = ops.FromHost(RandomTensor({1, rows, kOpDim}, 3, 100.0f));
            Array second = ops.FromHost(RandomTensor({1, rows, kOpDim}, 4));
            GatedAddition a;
            a.x = &x;
            a.layer = gated;
            a.names = {"out", "branch"};
            a.gate.values = &mod;
            a.gate.gate = 2;
            a.gate.spans = {{0, rows, 1}};
            if (by_row) a.gate.spans = {{0, 6, 0}, {6, rows - 6, 1}};
            a.gate.by_row = by_row;
            a.gate_name = "gate";
            a.sum = &first;
            a.sum_name = "sum";
            GatedAddition b;
            b.x = &x;
            b.layer = plain;
            b.names = {"plain", nullptr};
            b.sum = &second;
            ops.AddProjected(std::array{a, b}, tap);
            std::vector<Tensor> results;
            results.push_back(ops.ToHost(first));
            results.push_back(ops.ToHost(second));
            return results;
          }};
}

inline Rope RandomRope(Ops& ops, int64_t tokens, int64_t half) {
  Tensor cos = RandomTensor({tokens, half}, 31), sin(cos.shape());
  for (int64_t i = 0; i < cos.size(); ++i) {
    sin[i] = std::sin(cos[i]);
    cos[i] = std::cos(cos[i]);
  }
  return {ops.FromHost(cos), ops.FromHost(sin)};
}

inline std::vector<Tensor> RunAttention(Ops& ops, const Tap& tap) {
  static const std::vector<float> kWeights[] = {Random(8, 41), Random(8, 42)};
  static const char* const kNames[][2] = {{"norm0", "rope0"}, {"norm1", "rope1"}};
  const Array memory = ops.New({1, 20, kOpDim});
  Joint q = ops.PartsOf(memory, kOpTokens), k = ops.PartsOf(ops.New({1, 14, kOpDim}), kOpTokens),
        v = ops.PartsOf(ops.New({1, 14, kOpDim}), kOpTokens),
        out = ops.PartsOf(ops.New({1, 14, kOpDim}), kOpTokens);
  // Something must write to parts that lie one behind the other. A device may keep copies of weights by
  // address.
  static TestLayers layers(TestLayers::Kind::kPlain);
  static const std::vector<const Linear*> kLayers = {&layers.Get(kOpDim, 32), &layers.Get(kOpDim, 32),
                                                     &layers.Get(kOpDim, 32)};
  for (size_t i = 0; i < 2; ++i) {
    const Array x = ops.FromHost(RandomTensor({1, kOpTokens[i], 32}, static_cast<uint32_t>(50 + i)));
    ops.Multiply(*kLayers[0], x, q[i]);
    ops.Multiply(*kLayers[1], x, k[i]);
    ops.Multiply(*kLayers[2], x, v[i]);
  }
  const Rope rope = RandomRope(ops, 14, 4);
  const Rope parts[] = {{ops.Rows(rope.cos, 0, 5), ops.Rows(rope.sin, 0, 5)},
                        {ops.Rows(rope.cos, 5, 9), ops.Rows(rope.sin, 5, 9)}};
  std::vector<NormRope> inputs;
  for (size_t i = 0; i < 2; ++i)
    inputs.push_back({&q[i], &kWeights[i], 1e-6f, &parts[i], kNames[i][0], kNames[i][1]});
  ops.NormAndRotate(inputs, tap);
  AttentionInput input{.q = &q, .k = &k, .v = &v, .heads = 8, .kv_heads = 8, .head_dim = 8};
  input.weights = "weights";
  input.entropy = "entropy";
  input.output = "output";
  ops.Attend(input, out, tap);
  std::vector<Tensor> results;
  for (const Array& part : out) results.push_back(ops.ToHost(part));
  return results;
}

// Of columns of one array, in segments; causal, with shared heads.
inline std::vector<Tensor> RunSegments(Ops& ops, const Tap& tap) {
  const Array qkv = ops.FromHost(RandomTensor({10, 48 + 2 * 24}, 1));
  Joint q = {ops.Cols(qkv, 0, 48)}, k = {ops.Cols(qkv, 48, 24)};
  const Joint v = {ops.Cols(qkv, 72, 24)};
  const Rope rope = RandomRope(ops, 10, 4);
  static const std::vector<float> kWeight = Random(8, 43);
  const NormRope norm{&q[0], &kWeight, 1e-6f, &rope, "norm of columns", "columns rotated"};
  ops.NormAndRotate({&norm, 1}, tap);
  ops.RotateHalves(rope, q[0]);
  const NormRope halves{
      &k[0], &kWeight, 1e-6f, &rope, "norm of halves", "halves rotated", NormRope::Pairs::kHalves};
  ops.NormAndRotate({&halves, 1}, tap);
  std::vector<Tensor> results;
  for (const bool causal : {false, true}) {
    Joint out = {ops.Cols(ops.New({10, 60}), 6, 48)};
    AttentionInput input{.q = &q, .k = &k, .v = &v, .heads = 6, .kv_heads = 3, .head_dim = 8};
    input.causal = causal;
    if (!causal) input.spans = SeparateSpans(std::array<int64_t, 3>{4, 7, 10});
    input.output = causal ? "causal output" : "output";
    ops.Attend(input, out, tap);
    results.push_back(ops.ToHost(out[0]));
  }
  // A text that sees what is before it, a picture that sees itself and all before it, and text again.
  Joint out = {ops.New({10, 48})};
  AttentionInput input{.q = &q, .k = &k, .v = &v, .heads = 6, .kv_heads = 3, .head_dim = 8};
  input.spans = {{.first_query = 0, .queries = 3, .first_key = 0, .keys = 3, .causal = true},
                 {.first_query = 3, .queries = 4, .first_key = 0, .keys = 7},
                 {.first_query = 7, .queries = 3, .first_key = 0, .keys = 10, .causal = true}};
  input.weights = "weights of spans";
  input.entropy = "entropy of spans";
  input.output = "output of spans";
  ops.Attend(input, out, tap);
  results.push_back(ops.ToHost(out[0]));
  return results;
}

inline std::vector<Tensor> RunRows(Ops& ops, const Tap& tap) {
  static const std::vector<float> kWeight = Random(32, 7);
  Array x = ops.FromHost(RandomTensor({6, 32}, 1)), y = ops.FromHost(RandomTensor({6, 32}, 2));
  ops.RmsNorm(kWeight, 1e-6f, x);
  ops.Show(tap, "normed", x);
  static const std::vector<float> kBias = Random(32, 8);
  ops.LayerNorm(kWeight, kBias, 1e-6f, y);
  ops.Show(tap, "layer normed", y);
  Array silu = ops.Reordered(x, std::array<int64_t, 3>{2, 0, 1}, 2);
  ops.Silu(silu);
  ops.SiluMul(y, x);
  Array sum = ops.Reshaped(ops.FromHost(RandomTensor({3, 64}, 3)), {6, 32});
  ops.Add(x, sum);
  const Array parts[] = {ops.Cols(sum, 0, 20), ops.Cols(sum, 20, 12)};
  Array tanh = ops.FromHost(RandomTensor({2, 32}, 4));
  ops.Tanh(tanh);
  std::vector<Tensor> results;
  results.push_back(ops.ToHost(tanh));
  for (const Keeping keeping : {Keeping::kFloat32, Keeping::kBfloat16}) {
    const Array kept = ops.Keep(ops.Rows(y, 1, 4), keeping);
    Array restored = ops.New({4, 32});
    ops.Restore(kept, restored);
    results.push_back(ops.ToHost(restored));
  }
  results.push_back(ops.ToHost(silu));
  results.push_back(ops.ToHost(ops.JoinCols(parts)));
  results.push_back(ops.ToHost(ops.Rows(sum, 2, 3)));
  return results;
}

// A product into columns of a wider array, of an input that is columns of one.
inline OpCase StridedCase(const std::string& name, TestLayers& layers) {
  const Linear* layer = &layers.Get(48, kOpDim);
  return {name, [layer](Ops& ops, const Tap&) {
            const Array wide = ops.FromHost(RandomTensor({7, 2 * kOpDim}, 1));
            const Array x = ops.Cols(wide, 32, kOpDim);
            Array y = ops.Cols(ops.New({7, 100}), 26, 48);
            ops.Multiply(*layer, x, y);
            std::vector<Tensor> results;
            results.push_back(ops.ToHost(y));
            return results;
          }};
}

inline Conv3x3Layer RandomConv3x3(int64_t out, int64_t in, uint32_t seed) {
  Conv3x3Layer layer{.in = in, .out = out};
  layer.converted = std::make_shared<std::vector<float>>(Random(out * in * 27, seed, 0.2f));
  layer.weight = {layer.converted->data(), DType::kF32, out, in * 27};
  layer.bias = Random(out, seed + 1);
  return layer;
}

inline std::vector<Tensor> RunPictures(Ops& ops, const Tap& tap) {
  static const Conv kDown{8, 6, 3, Random(6 * 9 * 8, 1, 0.2f), Random(6, 2)};
  static const Conv kPoint{8, 5, 1, Random(5 * 8, 3, 0.2f), Random(5, 4)};
  static const Conv3x3Layer kSame = RandomConv3x3(7, 8, 5);
  static const ConvBranch kBranch{Random(8, 6), Random(8, 7), RandomConv3x3(8, 8, 8),
                                  RandomConv3x3(8, 8, 10)};
  const Tensor picture = RandomTensor({1, 8, 30, 13}, 12);
  std::vector<Tensor> results;
  const auto keep = [&](const Array& x, Frames frames) { results.push_back(ops.ToPicture(x, frames)); };
  Array x = ops.FromPicture(picture);
  ops.ShowPicture(tap, "picture", x, Frames::kNone);
  keep(ops.Convolve(kDown, x, 2, 1), Frames::kNone);
  keep(ops.Convolve(kPoint, x, 1, 0), Frames::kOne);
  keep(ops.Convolve(kSame, x, false), Frames::kNone);
  keep(ops.Convolve(kSame, x, true), Frames::kNone);
  keep(ops.ChannelNorm(kBranch.norm1, x), Frames::kNone);
  keep(ops.NormSiluConvolve(kBranch.norm1, "head", kSame, x, tap), Frames::kNone);
  Array sum = ops.FromPicture(RandomTensor({1, 8, 30, 13}, 13));
  ops.AddBranch(kBranch, x, sum, tap.Under("apart."));
  keep(sum, Frames::kNone);
  ops.AddBranch(kBranch, x, x, tap.Under("onto_itself."));
  keep(x, Frames::kNone);
  const Array even = ops.FromPicture(RandomTensor({1, 8, 6, 10}, 14));
  keep(ops.FoldedMeans({.side = 2, .frames = 2}, even, 16), Frames::kNone);
  keep(ops.FoldedMeans({}, even, 8), Frames::kNone);
  Array large = ops.FromPicture(RandomTensor({1, 4, 12, 20}, 15));
  ops.AddUnfolded({.side = 2, .frames = 1}, even, large, "unfolded", tap);
  keep(large, Frames::kNone);
  return results;
}

inline std::vector<OpCase> OpCases(TestLayers& layers) {
  using Kind = Norm::Kind;
  return {ProjectCase("Project, layer norm", layers, {Kind::kLayer}, Activation::kNone),
          ProjectCase("Project, layer norm, gelu", layers, {Kind::kLayer}, Activation::kGeluTanh),
          ProjectCase("Project, rms norm, exact gelu", layers, {Kind::kRms}, Activation::kGelu),
          ProjectCase("Project, no norm", layers, {Kind::kNone}, Activation::kNone),
          ProjectCase("Project, layer norm with bias, modulated", layers, {Kind::kLayer, true},
                      Activation::kNone),
          ProjectCase("Project, layer norm with bias, gelu", layers, {Kind::kLayer, true},
                      Activation::kGeluTanh, TestModulation::kNo),
          AddProjectedCase("AddProjected", layers, false),
          AddProjectedCase("AddProjected, by row", layers, true),
          StridedCase("Multiply, strided", layers),
          {"NormAndRotate, Attend", RunAttention},
          {"RotateHalves, Attend", RunSegments},
          {"rows", RunRows},
          {"pictures", RunPictures}};
}

}  // namespace qwen_image::testing
