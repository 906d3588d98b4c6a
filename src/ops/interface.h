// The operations that models are written in. A model's forward pass is one text over these; each device
// decides how it computes an operation: by one kernel or by four, in 8 bits or in 32.
//
// Operations are composite: what a device can fuse is one operation. Names of checkpoints inside an operation
// are given to it; a device may fuse over those that no listener wants. A name that is null cannot be
// listened to. The result has the same bits with a listener and without.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/checkpoint.h"
#include "core/tensor.h"
#include "ops/array.h"
#include "ops/compute.h"
#include "ops/conv.h"
#include "ops/linear.h"

namespace qwen_image {

// Arrays with equal columns that make one sequence: that of the text, then that of the picture.
using Joint = std::vector<Array>;

struct Norm {
  enum class Kind {
    kNone,
    kLayer,  // (x − mean) / √(variance + eps), and · weight + bias where they are given
    kRms,    // x / √(mean(x²) + eps) · weight
  } kind = Kind::kNone;
  float eps = 0;
  const std::vector<float>* weight = nullptr;  // [cols], of kRms, and of kLayer together with a bias
  const char* name = nullptr;                  // of the checkpoint
  const std::vector<float>* bias = nullptr;    // [cols], of kLayer
};

// Rows of one array that a row of a modulation belongs to.
struct ModulatedRows {
  int64_t begin = 0, count = 0;
  int64_t row = 0;  // of Modulation::values
};

// Shifts, scales and gates that follow from the timestep. At most two spans of rows. Without a shift nothing
// is added.
struct Modulation {
  static constexpr int64_t kNone = -1;

  const Array* values = nullptr;                       // [rows, parts · cols]; null: there is no modulation
  int64_t shift = kNone, scale = kNone, gate = kNone;  // which part
  std::vector<ModulatedRows> spans;
  bool by_row =
      false;  // a listener is shown a gate for each row, [1, rows, cols], not one for all, [1, cols]

  // That of `count` rows from `first` on, as an array of their own.
  Modulation OfRows(int64_t first, int64_t count) const;
};

enum class Activation { kNone, kGeluTanh, kGelu };

struct Product {
  const Linear* layer = nullptr;
  const char* name = nullptr;
  Array* y = nullptr;  // made by New
};

// y = activation(layer(modulated(norm(x)))), for several layers of one input.
struct Projection {
  const Array* x = nullptr;
  Norm norm = {};
  Modulation modulation = {};  // x · (1 + scale) + shift
  const char* modulated = nullptr;
  std::vector<Product> products;
  Activation activation = Activation::kNone;
  const char* activated = nullptr;
};

// sum += gate · layer(x); without a gate, sum += layer(x).
struct GatedAddition {
  const Array* x = nullptr;
  const Linear* layer = nullptr;
  std::array<const char*, 2> names = {};  // of the layer's output; modules in each other return the same
  Modulation gate = {};
  const char* gate_name = nullptr;
  Array* sum = nullptr;
  const char* sum_name = nullptr;
};

// sum += gate · down(silu(gate_layer(x')) · up(x')), where x' = modulated(norm(x)). What lies between is
// several times as wide as x; a device need not hold all of it.
struct GatedMlp {
  const Array* x = nullptr;
  Norm norm = {};
  Modulation modulation = {};  // scale and shift of x, gate of the sum
  const char* modulated = nullptr;
  const Linear *gate_layer = nullptr, *up = nullptr, *down = nullptr;
  const char *gate_layer_name = nullptr, *up_name = nullptr;
  std::array<const char*, 2> down_names = {};  // as GatedAddition::names
  const char* gate_name = nullptr;
  Array* sum = nullptr;  // may be x
  const char* sum_name = nullptr;
};

struct Rope {
  Array cos, sin;  // [tokens, head_dim / 2]
};

// Every head of x [1, tokens, heads · head_dim] is normalised (kRms) and its pairs are rotated.
struct NormRope {
  enum class Pairs {
    kNeighbours,  // (2i, 2i + 1)
    kHalves,      // (i, i + head_dim / 2)
  };
  Array* x = nullptr;
  const std::vector<float>* weight = nullptr;  // [head_dim]
  float eps = 0;
  const Rope* rope = nullptr;                      // for these tokens
  const char *norm = nullptr, *rotated = nullptr;  // checkpoints, [1, tokens, heads, head_dim]
  Pairs pairs = Pairs::kNeighbours;
};

// Queries of a sequence that look at some of its keys only.
struct AttentionSpan {
  int64_t first_query = 0, queries = 0;
  int64_t first_key = 0, keys = 0;
  bool causal = false;  // the queries are the last of these keys' tokens: the last one sees all keys, …
};
// One sequence that is several, which do not look at each other; `ends`: where each ends.
std::vector<AttentionSpan> SeparateSpans(std::span<const int64_t> ends);

struct AttentionInput {
  const Joint* q = nullptr;  // [1, tokens, heads · head_dim] each
  const Joint* k = nullptr;  // [1, tokens, kv_heads · head_dim] each
  const Joint* v = nullptr;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = false;
  bool int8 = false;                      // the CPU may multiply in 8 bits
  std::vector<AttentionSpan> spans = {};  // of all queries, in their order; empty: each sees all keys
  // Checkpoints of the whole sequence: [1, heads, queries, keys], [1, heads], [1, queries, heads · head_dim].
  const char *weights = nullptr, *entropy = nullptr, *output = nullptr;
};

enum class Keeping { kFloat32, kBfloat16 };

// Whether the tensors of the reference have a frame axis: [1, channels, 1, height, width].
enum class Frames { kNone, kOne };

// How a large picture lies in a small one, for shortcuts without weights. A small pixel holds side × side
// large ones, of each of `frames` frames of a video; a single picture is the last of these, and the others
// are zeros. The large values of a small pixel, channel by channel, then frame by frame and row by row, are
// shared out evenly among its channels.
struct Folding {
  int64_t side = 1, frames = 1;
};

// One pass's way to compute. It owns the memory that its operations share, and belongs to one thread.
class Ops {
 public:
  virtual ~Ops() = default;

  // Everything of a pass happens inside `work`.
  virtual void Run(const std::function<void()>& work) { work(); }

  // Arrays.
  virtual Array New(const Shape& shape) = 0;  // the values are not set
  // Memory [1, rows, cols] that New made, or the first rows of it, as one array for each number of tokens.
  // The values are not set.
  virtual Joint PartsOf(const Array& memory, std::span<const int64_t> tokens) = 0;
  virtual Array FromHost(const Tensor& x) = 0;
  virtual Tensor ToHost(const Array& x) = 0;
  virtual Array Rows(const Array& x, int64_t first, int64_t count) = 0;  // of [1, rows, cols] or [rows, cols]
  virtual Array Cols(const Array& x, int64_t first, int64_t count) = 0;
  virtual Array JoinRows(std::span<const Array> parts) = 0;  // [1, rows, cols] of as many columns, copied
  virtual Array JoinCols(std::span<const Array> parts) = 0;  // side by side, as Cols cut them
  virtual Array Reshaped(const Array& x, const Shape& shape) = 0;
  // Groups of `unit` rows: to the place i the group order[i]. x [rows, cols]
  virtual Array Reordered(const Array& x, std::span<const int64_t> order, int64_t unit) = 0;
  // Shows an array to a listener, who may change it.
  virtual void Show(const Tap& tap, std::string_view name, Array& x) = 0;
  // A copy of [1, rows, cols] that outlives the memory it was computed in, and the way back. bfloat16 halves
  // it and rounds.
  virtual Array Keep(const Array& x, Keeping keeping) = 0;
  virtual void Restore(const Array& kept, Array& x) = 0;
  // A device that collects work before it computes does so now.
  virtual void Finish(std::span<Array* const> arrays) = 0;

  // Rows.
  virtual void Multiply(const Linear& layer, const Array& x, Array& y) = 0;  // in the precision of x
  virtual void RmsNorm(const std::vector<float>& weight, float eps, Array& x) = 0;
  virtual void LayerNorm(const std::vector<float>& weight, const std::vector<float>& bias, float eps,
                         Array& x) = 0;
  virtual void Silu(Array& x) = 0;
  virtual void Tanh(Array& x) = 0;
  virtual void SiluMul(const Array& up, Array& gate) = 0;  // gate = silu(gate) · up
  virtual void Add(const Array& x, Array& sum) = 0;
  // Several at once keep all threads busy until the last one is done.
  virtual void Project(std::span<const Projection> projections, const Tap& tap) = 0;
  virtual void AddProjected(std::span<const GatedAddition> additions, const Tap& tap) = 0;
  virtual void AddGatedMlp(const GatedMlp& mlp, const Tap& tap) = 0;
  virtual void NormAndRotate(std::span<const NormRope> inputs, const Tap& tap) = 0;
  virtual void RotateHalves(const Rope& rope, Array& x) = 0;  // pairs (i, i + head_dim / 2) of every head
  virtual void Attend(const AttentionInput& input, Joint& out, const Tap& tap) = 0;

  // Pictures, [height, width, channels].
  virtual Array FromPicture(const Tensor& x /*[1, c, (1,) h, w]*/) = 0;
  virtual Tensor ToPicture(const Array& x, Frames frames) = 0;
  virtual void ShowPicture(const Tap& tap, std::string_view name, Array& x, Frames frames) = 0;
  // Zeros: pad_after rows below and as many columns to the right.
  virtual Array Convolve(const Conv& layer, const Array& x, int64_t stride, int64_t pad_after) = 0;
  // With `upsample` every pixel becomes 2 × 2 equal ones first.
  virtual Array Convolve(const Conv3x3Layer& layer, const Array& x, bool upsample) = 0;
  virtual Array ChannelNorm(const std::vector<float>& gamma, const Array& x) = 0;
  // layer(SiLU(ChannelNorm(x)))
  virtual Array NormSiluConvolve(const std::vector<float>& gamma, const char* norm, const Conv3x3Layer& layer,
                                 const Array& x, const Tap& tap) = 0;
  // sum += branch(x); sum may be x. Checkpoints norm1, conv1, norm2, conv2.
  virtual void AddBranch(const ConvBranch& branch, const Array& x, Array& sum, const Tap& tap) = 0;
  // The small picture of a large one: each of its `channels` is the mean of its share.
  virtual Array FoldedMeans(const Folding& folding, const Array& x, int64_t channels) = 0;
  // Large sum += small x: each channel of x is added to all of its share. The checkpoint is what is added.
  virtual void AddUnfolded(const Folding& folding, const Array& x, Array& sum, const char* name,
                           const Tap& tap) = 0;

  // A pass whose blocks are cut over several machines, one behind the other: each computes its own, between
  // taking the state over from the machine before it and handing it over to the one behind it. What ToHost
  // returns then is the last machine's, on the first one.
  struct Blocks {
    size_t begin = 0, end = 0;
    size_t count() const { return end - begin; }
  };
  virtual Blocks OwnBlocks(size_t count) const { return {0, count}; }
  virtual void TakeOver(std::span<Array* const> /*state*/) {}
  virtual void HandOver(std::span<Array* const> /*state*/) {}

  // A device that compiles: a part of a pass as a function of arrays and weights. Parts whose layers have one
  // form share what is compiled, so `body` takes everything else it needs from objects that live as long as
  // the weights.
  struct CompiledPart {
    std::vector<const Linear*> layers;
    std::vector<const std::vector<float>*> vectors;  // weights of norms
    std::vector<int64_t> numbers;                    // that the body knows beside the arrays' shapes
    size_t changed = 0;  // how many arrays of the state, the first ones, get new values
    std::function<void(Ops& ops, std::span<Array> state)> body;
  };
  virtual bool compiles() const { return false; }
  virtual void RunCompiled(const CompiledPart& part, std::span<Array> state) { part.body(*this, state); }
};

// A device as a model's component sees it.
class Backend {
 public:
  virtual ~Backend() = default;
  // `compute` outlives the pass.
  virtual std::unique_ptr<Ops> Start(const Compute& compute) = 0;
  virtual bool copies_weights() const { return false; }  // what has been used need not stay in memory
  virtual void Release() {}                              // the device's copies of weights
};

// This program's own kernels. What lies between the two convolutions of a ConvBranch is made and used in
// bands of rows of about `band_floats` floats; the result does not depend on it.
std::shared_ptr<Backend> CpuBackend(int64_t band_floats = 8 << 20);

}  // namespace qwen_image
