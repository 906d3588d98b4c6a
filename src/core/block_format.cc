#include "core/block_format.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "core/ggml_blocks.h"

namespace qwen_image {
namespace {

template <DType dtype>
void DecodeFloats(const std::byte* blocks, int64_t count, float* to) {
  ConvertToFloat(blocks, dtype, count, to);
}

void DecodeF64(const std::byte* blocks, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    double value;
    std::memcpy(&value, blocks + 8 * i, 8);
    to[i] = static_cast<float>(value);
  }
}

// A byte pointer may point into `to` as far as the compiler knows; without the promise that it does not, it
// converts one value at a time.
template <typename Byte, float (*convert)(Byte)>
void DecodeBytes(const std::byte* __restrict blocks, int64_t count, float* __restrict to) {
  for (int64_t i = 0; i < count; ++i) to[i] = convert(static_cast<Byte>(blocks[i]));
}

float FloatFromI8(int8_t value) { return value; }

constexpr int kI8Group = 64;  // any would do: it has no scales

constexpr uint8_t kI8Flip = 0x80;

void ReadI8Scales(const std::byte*, int64_t count, float* scales, float* biases) {
  std::fill_n(scales, count / kI8Group, 1.0f);
  std::fill_n(biases, count / kI8Group, -128.0f);
}

void UnpackI8(const std::byte* blocks, int64_t count, uint8_t* q, float* scales, float* biases) {
  for (int64_t i = 0; i < count; ++i) q[i] = static_cast<uint8_t>(blocks[i]) ^ kI8Flip;
  ReadI8Scales(blocks, count, scales, biases);
}

constexpr IntegerBlocks kI8Integers = {kI8Group, 8, UnpackI8, {.bits = 8, .flip = kI8Flip}, ReadI8Scales};

// A type with which weights are computed, and one with which none are.
constexpr BlockFormat Decoded(DType dtype, std::string_view name, int64_t bytes,
                              void (*decode)(const std::byte*, int64_t, float*), int ggml,
                              std::string_view npy, std::string_view numpy) {
  return {dtype, name, 1, bytes, decode, {}, ggml, npy, numpy, true};
}
constexpr BlockFormat Other(DType dtype, std::string_view name, int64_t bytes, int ggml, std::string_view npy,
                            std::string_view numpy) {
  return {dtype, name, 1, bytes, nullptr, {}, ggml, npy, numpy, true};
}

// In the order of DType.
constexpr BlockFormat kPlainTypes[] = {
    Decoded(DType::kF32, "F32", 4, DecodeFloats<DType::kF32>, 0, "<f4", "float32"),
    Decoded(DType::kF16, "F16", 2, DecodeFloats<DType::kF16>, 1, "<f2", "float16"),
    Decoded(DType::kBF16, "BF16", 2, DecodeFloats<DType::kBF16>, 30, "", "bfloat16"),
    Decoded(DType::kF64, "F64", 8, DecodeF64, 28, "<f8", "float64"),
    Decoded(DType::kF8E4M3, "F8_E4M3", 1, DecodeBytes<uint8_t, FloatFromE4M3>, -1, "", ""),
    Decoded(DType::kF8E5M2, "F8_E5M2", 1, DecodeBytes<uint8_t, FloatFromE5M2>, -1, "", ""),
    Other(DType::kI64, "I64", 8, 27, "<i8", "int64"),
    Other(DType::kI32, "I32", 4, 26, "<i4", "int32"),
    Other(DType::kI16, "I16", 2, 25, "<i2", "int16"),
    {DType::kI8, "I8", 1, 1, DecodeBytes<int8_t, FloatFromI8>, kI8Integers, 24, "|i1", "int8", true},
    Other(DType::kU64, "U64", 8, -1, "<u8", "uint64"),
    Other(DType::kU32, "U32", 4, -1, "<u4", "uint32"),
    Other(DType::kU16, "U16", 2, -1, "<u2", "uint16"),
    Other(DType::kU8, "U8", 1, -1, "|u1", "uint8"),
    Other(DType::kBool, "BOOL", 1, -1, "|b1", "bool"),
};

constexpr BlockFormat Sized(DType dtype, std::string_view name, int64_t values, int64_t bytes, int ggml) {
  return {dtype, name, values, bytes, nullptr, {}, ggml};
}
constexpr BlockFormat GivenUp(std::string_view name, int ggml) {
  return {DType::kGivenUp, name, 0, 0, nullptr, {}, ggml};
}

// In the order of DType.
constexpr BlockFormat kSizedGgmlTypes[] = {
    Sized(DType::kQ8_1, "Q8_1", 32, 36, 9),  // the Python package says 40, from when its scales were float
    Sized(DType::kQ8_K, "Q8_K", 256, 292, 15),
    Sized(DType::kIQ2_XXS, "IQ2_XXS", 256, 66, 16),
    Sized(DType::kIQ2_XS, "IQ2_XS", 256, 74, 17),
    Sized(DType::kIQ3_XXS, "IQ3_XXS", 256, 98, 18),
    Sized(DType::kIQ1_S, "IQ1_S", 256, 50, 19),
    Sized(DType::kIQ3_S, "IQ3_S", 256, 110, 21),
    Sized(DType::kIQ2_S, "IQ2_S", 256, 82, 22),
    Sized(DType::kIQ1_M, "IQ1_M", 256, 56, 29),
    Sized(DType::kTQ1_0, "TQ1_0", 256, 54, 34),
    Sized(DType::kTQ2_0, "TQ2_0", 256, 66, 35),
    Sized(DType::kMXFP4, "MXFP4", 32, 17, 39),
    Sized(DType::kNVFP4, "NVFP4", 64, 36, 40),
    Sized(DType::kQ1_0, "Q1_0", 128, 18, 41),
    GivenUp("Q4_2", 4),
    GivenUp("Q4_3", 5),
    GivenUp("Q4_0_4_4", 31),
    GivenUp("Q4_0_4_8", 32),
    GivenUp("Q4_0_8_8", 33),
    GivenUp("IQ4_NL_4_4", 36),
    GivenUp("IQ4_NL_4_8", 37),
    GivenUp("IQ4_NL_8_8", 38),
};

// The index of a type is its DType, until the ones that were given up.
const std::vector<BlockFormat>& AllTypes() {
  static const std::vector<BlockFormat> all = [] {
    std::vector<BlockFormat> types;
    for (const std::span<const BlockFormat> part :
         {std::span<const BlockFormat>(kPlainTypes), GgmlBlockFormats(),
          std::span<const BlockFormat>(kSizedGgmlTypes)}) {
      types.insert(types.end(), part.begin(), part.end());
    }
    return types;
  }();
  return all;
}

template <typename Fits>
const BlockFormat* Find(const Fits& fits) {
  const auto found = std::find_if(AllTypes().begin(), AllTypes().end(), fits);
  return found == AllTypes().end() ? nullptr : &*found;
}

}  // namespace

const BlockFormat& FormatOf(DType dtype) { return AllTypes()[static_cast<size_t>(dtype)]; }

size_t SizeOf(DType dtype) { return static_cast<size_t>(FormatOf(dtype).bytes); }

std::string_view NameOf(DType dtype) { return FormatOf(dtype).name; }

const BlockFormat* FindBlockFormat(std::string_view name) {
  return Find([&](const BlockFormat& type) { return type.decode && type.name == name; });
}

const BlockFormat* FindSafetensorsType(std::string_view dtype) {
  return Find([&](const BlockFormat& type) { return type.safetensors && type.name == dtype; });
}

const BlockFormat* FindNpyType(std::string_view descr) {
  return Find([&](const BlockFormat& type) { return !type.npy.empty() && type.npy == descr; });
}

const BlockFormat* FindGgmlType(uint32_t number) {
  return Find(
      [&](const BlockFormat& type) { return type.ggml >= 0 && type.ggml == static_cast<int64_t>(number); });
}

}  // namespace qwen_image
