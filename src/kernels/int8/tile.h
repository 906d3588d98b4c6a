// The innermost part of a product of 8-bit activations and weights of up to 8 bits: the one piece that is
// written separately for each instruction set, since Highway 1.0 has no 8-bit dot products. Everything around
// it (packing, tasks, the epilogue) is shared.
//
// Weights are w = scale · q + bias with q unsigned and a scale and a bias for each group; activations are
// x = scale · a with a signed. So over a group  Σ w·x = w.scale · x.scale · Σ q·a + w.bias · x.scale · Σ a,
// where Σ q·a is a sum of integers and x.scale · Σ a is known before.
#pragma once

#include <cstdint>
#include <span>

namespace qwen_image {

inline constexpr int kInt8PanelCols = 16;  // outputs of a panel, i.e. rows of the weight matrix
inline constexpr int kInt8MaxTileRows = 12;

// kInt8PanelCols rows of the weight matrix over `groups` groups. Integers stand in fours of neighbouring
// depth, as all dot product instructions want them. Aligned to 64 bytes.
struct Int8Panel {
  const uint8_t* q;                 // [planes][depth / 4][kInt8PanelCols][4]
  const float* scales;              // [groups][kInt8PanelCols]
  const float* biases;              // [groups][kInt8PanelCols]
  int64_t plane_bytes;              // from one plane to the next
  const int32_t* starts = nullptr;  // [groups][kInt8PanelCols]: what the sums of integers begin with; null: 0
};

// Rows of activations over the same groups.
struct Int8Rows {
  const int8_t* a;      // [depth / 4][tile_rows][4]
  const float* scales;  // [groups][tile_rows]
  const float* sums;    // [groups][tile_rows]: scale · Σ a
};

// How the integers of a panel are stored.
enum class Int8Weights {
  kUnsigned,  // 0…255, one plane
  kNibbles,   // 0…15; above 4 bits in two planes, the low four bits and the high ones
  kSigned,    // −128…127, one plane: 8-bit ones are shifted by 128, which the biases make up for
};

// What a kernel computes: sums[p][r][c] (+)= row r · column c of panel p. The sum over groups is taken one
// after the other in single precision, so a row's result depends neither on the rows and panels beside it,
// nor on how the depth is cut.
struct Int8Tile {
  Int8Rows x;
  const Int8Panel* w;  // [panels]
  int panels;
  int rows;  // at most tile_rows
  int64_t groups;
  int group;    // 16, 32 or 64
  int planes;   // 2 for the two planes of kNibbles, else 1
  bool add;     // start from what is in `sums`
  float* sums;  // [panels][tile_rows][kInt8PanelCols], aligned to 64 bytes
  // The activations that are multiplied after these, as many: they are asked for piece by piece, so that they
  // are in the cache by then. Null: they are there, or there are none.
  const int8_t* next = nullptr;
};

// Asks for Int8Tile::next piece by piece: a share of it for each group of each panel.
class NextActivations {
 public:
  NextActivations(const Int8Tile& t, int panel, int tile_rows)
      : share_(t.next ? t.group * tile_rows / t.panels : 0), at_(t.next + panel * t.groups * share_) {}

  void FetchShare() {
    constexpr int64_t kLine = 64;
    for (int64_t i = 0; i < share_; i += kLine) __builtin_prefetch(at_ + i);
    at_ += share_;
  }

 private:
  const int64_t share_;
  const int8_t* at_;
};

struct Int8Kernel {
  const char* name;
  Int8Weights weights;
  int tile_rows;
  void (*multiply)(const Int8Tile& tile);
  bool fast_attention;  // whether attention by it is faster than in fp32
};

// Those that were compiled and that this machine can run, the fastest first; the last is plain C++.
std::span<const Int8Kernel* const> Int8Kernels();

// The one in use: the first of Int8Kernels() unless another was chosen.
const Int8Kernel& ChosenInt8Kernel();
void ChooseInt8Kernel(const Int8Kernel* kernel);  // null: back to the first

extern const Int8Kernel kInt8Portable;
#if defined(__x86_64__)
extern const Int8Kernel kInt8Avx2, kInt8AvxVnni, kInt8Avx512Vnni, kInt8Avx512Vnni256;
#elif defined(__aarch64__)
extern const Int8Kernel kInt8NeonDot, kInt8NeonI8mm;
#endif

}  // namespace qwen_image
