#include "kernels/int8/interleave.h"

#include <algorithm>
#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/int8/interleave.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must follow foreach_target.h.
#include "hwy/highway.h"
#include "kernels/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qwen_image {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kFour = 4;         // bytes that stay together
constexpr int kPieceBytes = 16;  // of a row at a time, in a block of a vector
constexpr int kPieceFours = kPieceBytes / kFour;
constexpr int kRowOfFours = kFour * kInt8PanelCols;  // bytes of a panel

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE uint8_t ByteAt(const PanelRows& from, int column, int64_t k, int64_t in_block) {
  return from.rows[column][k / from.block_depth * from.block_bytes + in_block];
}

HWY_INLINE int64_t PlaceOf(int64_t k, int column) {
  return k / kFour * kRowOfFours + column * kFour + k % kFour;
}

void InterleaveBytePieces(const PanelRows& from, int64_t depth, uint8_t flip, uint8_t* to, uint8_t* high) {
  for (int64_t k = 0; k < depth; ++k) {
    for (int c = 0; c < kInt8PanelCols; ++c) {
      const auto q = static_cast<uint8_t>(ByteAt(from, c, k, k % from.block_depth) ^ flip);
      to[PlaceOf(k, c)] = high ? q & 15 : q;
      if (high) high[PlaceOf(k, c)] = q >> 4;
    }
  }
}

void InterleaveNibblePieces(const PanelRows& from, int64_t depth, int apart, uint8_t* to) {
  const int64_t run = std::max(1, apart);
  for (int64_t k = 0; k < depth; ++k) {
    const int64_t in_block = k % from.block_depth, byte = in_block / (2 * run) * run + in_block % run;
    for (int c = 0; c < kInt8PanelCols; ++c) {
      const uint8_t both = ByteAt(from, c, k, byte);
      to[PlaceOf(k, c)] = in_block / run % 2 == 0 ? both & 15 : both >> 4;
    }
  }
}

#else  // there are vectors

using D8 = hn::CappedTag<uint8_t, kRowOfFours>;
using V8 = hn::Vec<D8>;
constexpr int kColumns = hn::MaxLanes(D8()) / kFour;  // of a vector: 4, 8 or 16

// fours[i] = bytes [at + 4 · i, at + 4 · i + 4) of each of kColumns rows.
HWY_INLINE void LoadFours(const uint8_t* const* rows, int64_t at, V8 (&fours)[kPieceFours]) {
  const D8 d;
  const hn::Repartition<uint32_t, D8> d32;
  auto r0 = FoursOfRows(d32, rows, at), r1 = FoursOfRows(d32, rows + 1, at);
  auto r2 = FoursOfRows(d32, rows + 2, at), r3 = FoursOfRows(d32, rows + 3, at);
  TransposeFours(d32, r0, r1, r2, r3);
  fours[0] = hn::BitCast(d, r0);
  fours[1] = hn::BitCast(d, r1);
  fours[2] = hn::BitCast(d, r2);
  fours[3] = hn::BitCast(d, r3);
}

HWY_INLINE V8 HighNibbles(V8 v) {
  const D8 d;
  const hn::Repartition<uint16_t, D8> d16;
  return hn::And(hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(d16, v))), hn::Set(d, 15));
}

HWY_INLINE V8 LowNibbles(V8 v) { return hn::And(v, hn::Set(D8(), 15)); }

// Calls piece(rows, block, i, to) for all pieces of 16 bytes: byte i of a block, which begins at `block`, is
// where one begins in the rows; and `to` is where kColumns columns of a panel begin, at the depth where the
// piece's integers do if a byte holds kPerByte.
template <int kPerByte, class Piece>
HWY_INLINE void ForEachPiece(const PanelRows& from, int64_t depth, uint8_t* to, const Piece& piece) {
  for (int64_t block = 0; block < depth / from.block_depth; ++block) {
    for (int64_t i = 0; i < from.block_depth / kPerByte; i += kPieceBytes) {
      const int64_t four = (block * from.block_depth + i * kPerByte) / kFour;
      for (int column = 0; column < kInt8PanelCols; column += kColumns) {
        piece(from.rows + column, block * from.block_bytes, i, to + four * kRowOfFours + column * kFour);
      }
    }
  }
}

void InterleaveBytePieces(const PanelRows& from, int64_t depth, uint8_t flip, uint8_t* to, uint8_t* high) {
  const D8 d;
  const V8 flips = hn::Set(d, flip);
  const ptrdiff_t plane = high ? high - to : 0;
  ForEachPiece<1>(from, depth, to,
                  [&](const uint8_t* const* rows, int64_t block, int64_t i, uint8_t* out) HWY_ATTR {
                    V8 fours[kPieceFours];
                    LoadFours(rows, block + i, fours);
                    for (int four = 0; four < kPieceFours; ++four, out += kRowOfFours) {
                      const V8 q = hn::Xor(fours[four], flips);
                      hn::Store(plane ? LowNibbles(q) : q, d, out);
                      if (plane) hn::Store(HighNibbles(q), d, out + plane);
                    }
                  });
}

void InterleaveNeighbours(const PanelRows& from, int64_t depth, uint8_t* to) {
  const D8 d;
  const hn::Repartition<uint16_t, D8> d16;
  // Of four bytes the first two, or the last two, each widened to 16 bits.
  constexpr uint8_t kNone = 0x80;
  alignas(16) static constexpr uint8_t kHalves[2][16] = {
      {0, kNone, 1, kNone, 4, kNone, 5, kNone, 8, kNone, 9, kNone, 12, kNone, 13, kNone},
      {2, kNone, 3, kNone, 6, kNone, 7, kNone, 10, kNone, 11, kNone, 14, kNone, 15, kNone}};
  const V8 halves[2] = {hn::LoadDup128(d, kHalves[0]), hn::LoadDup128(d, kHalves[1])};
  ForEachPiece<2>(
      from, depth, to, [&](const uint8_t* const* rows, int64_t block, int64_t i, uint8_t* out) HWY_ATTR {
        V8 fours[kPieceFours];
        LoadFours(rows, block + i, fours);
        for (int four = 0; four < 2 * kPieceFours; ++four, out += kRowOfFours) {
          const auto pairs = hn::BitCast(d16, hn::TableLookupBytesOr0(fours[four / 2], halves[four % 2]));
          hn::Store(LowNibbles(hn::BitCast(d, hn::Or(pairs, hn::ShiftLeft<4>(pairs)))), d, out);
        }
      });
}

template <int kApart>
HWY_INLINE void InterleaveApart(const PanelRows& from, int64_t depth, uint8_t* to) {
  const D8 d;
  ForEachPiece<2>(from, depth, to,
                  [&](const uint8_t* const* rows, int64_t block, int64_t i, uint8_t* out) HWY_ATTR {
                    V8 fours[kPieceFours];
                    LoadFours(rows, block + i, fours);
                    // Pieces within kApart bytes are neighbours, although their bytes hold twice as many
                    // integers.
                    out -= i % kApart / kFour * kRowOfFours;
                    for (int four = 0; four < kPieceFours; ++four, out += kRowOfFours) {
                      hn::Store(LowNibbles(fours[four]), d, out);
                      hn::Store(HighNibbles(fours[four]), d, out + kApart / kFour * kRowOfFours);
                    }
                  });
}

void InterleaveNibblePieces(const PanelRows& from, int64_t depth, int apart, uint8_t* to) {
  if (apart == 0) return InterleaveNeighbours(from, depth, to);
  if (apart == 16) return InterleaveApart<16>(from, depth, to);
  InterleaveApart<32>(from, depth, to);
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace qwen_image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qwen_image {

HWY_EXPORT(InterleaveBytePieces);
HWY_EXPORT(InterleaveNibblePieces);

void InterleaveBytes(const PanelRows& from, int64_t depth, uint8_t flip, uint8_t* to, uint8_t* high) {
  HWY_DYNAMIC_DISPATCH(InterleaveBytePieces)(from, depth, flip, to, high);
}

void InterleaveNibbles(const PanelRows& from, int64_t depth, int apart, uint8_t* to) {
  HWY_DYNAMIC_DISPATCH(InterleaveNibblePieces)(from, depth, apart, to);
}

void TransposeFloats(const float* rows, int64_t stride, int64_t count, float* to) {
  const int64_t whole = count / 4 * 4;  // a float is four bytes that stay together
  PanelRows bytes = {.rows = {}, .block_depth = 16, .block_bytes = 16};
  for (int c = 0; c < kInt8PanelCols; ++c) {
    bytes.rows[c] = reinterpret_cast<const uint8_t*>(rows + c * stride);
    for (int64_t i = whole; i < count; ++i) to[i * kInt8PanelCols + c] = rows[c * stride + i];
  }
  InterleaveBytes(bytes, 4 * whole, 0, reinterpret_cast<uint8_t*>(to), nullptr);
}

}  // namespace qwen_image
#endif
