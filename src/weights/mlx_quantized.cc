#include "weights/mlx_quantized.h"

#include <algorithm>
#include <limits>

#include "core/fail.h"
#include "files/text.h"

namespace qwen_image {
namespace {

constexpr int64_t kWordBits = 32;

DType FloatType(std::string_view name, const char* what, const StoredTensor& entry) {
  if (!IsComputeType(entry.dtype)) {
    Fail(ErrorKind::kBadInput, "the {} of {} are {}; F32, F16 or BF16 is expected", what, Quoted(name),
         NameOf(entry.dtype));
  }
  return entry.dtype;
}

}  // namespace

std::vector<MlxQuantization> PossibleMlxQuantizations(const Shape& packed, const Shape& scales) {
  std::vector<MlxQuantization> found;
  if (packed.empty() || packed.size() != scales.size()) return found;
  if (!std::equal(packed.begin(), packed.end() - 1, scales.begin())) return found;
  const int64_t words = packed.back(), groups = scales.back();
  // The upper limit is for shapes of no elements, which may name any number: the unpacked shape must fit too.
  if (words <= 0 || groups <= 0 || groups > std::numeric_limits<int64_t>::max() / kMlxGroupSizes.back())
    return found;
  for (const int bits : kMlxBits) {
    for (const int group_size : kMlxGroupSizes) {
      // A group fills whole words: 32 values of b bits are b words.
      const int64_t group_words = bits * group_size / kWordBits;
      if (words % group_words == 0 && words / group_words == groups) found.push_back({bits, group_size});
    }
  }
  return found;
}

MlxQuantizedTensor::MlxQuantizedTensor(std::string_view name, const StoredTensor& weight,
                                       const StoredTensor& scales, const StoredTensor& biases,
                                       MlxQuantization quantization)
    : quantization_(quantization),
      groups_{.bits = quantization.bits,
              .group_size = quantization.group_size,
              .packed = weight.bytes.data(),
              .scales = scales.bytes.data(),
              .biases = biases.bytes.data(),
              .scales_dtype = FloatType(name, "scales", scales),
              .biases_dtype = FloatType(name, "biases", biases)},
      shape_(weight.shape) {
  if (weight.dtype != DType::kU32) {
    Fail(ErrorKind::kBadInput, "{} is {}; packed values are U32", Quoted(name), NameOf(weight.dtype));
  }
  const auto possible = PossibleMlxQuantizations(weight.shape, scales.shape);
  if (std::find(possible.begin(), possible.end(), quantization) == possible.end()) {
    Fail(ErrorKind::kBadInput, "{}: packed values {} and scales {} are not {}-bit in groups of {}",
         Quoted(name), ToString(weight.shape), ToString(scales.shape), quantization.bits,
         quantization.group_size);
  }
  if (scales.shape != biases.shape) {
    Fail(ErrorKind::kBadInput, "{}: its scales are {} and its biases {}; the same shape is expected",
         Quoted(name), ToString(scales.shape), ToString(biases.shape));
  }
  shape_.back() = scales.shape.back() * quantization.group_size;
  group_count_ = ElementCount(scales.shape);
}

std::optional<MlxQuantization> LikelyMlxQuantization(std::string_view name, const StoredTensor& weight,
                                                     const StoredTensor& scales, const StoredTensor& biases) {
  std::vector<MlxQuantization> possible = PossibleMlxQuantizations(weight.shape, scales.shape);
  if (possible.empty()) return std::nullopt;
  if (possible.size() == 1) return possible[0];
  // Seen with fewer bits than it has, every group has a zero too: the most bits that pass are the answer.
  // With too many bits even evenly spread q leave more groups without a zero than kShare allows.
  constexpr int64_t kMinGroups = 32, kMaxGroups = 1024;
  constexpr double kShare = 0.99;
  std::sort(possible.begin(), possible.end(),
            [](const MlxQuantization& a, const MlxQuantization& b) { return a.bits > b.bits; });
  for (const MlxQuantization& candidate : possible) {
    const MlxQuantizedTensor tensor(name, weight, scales, biases, candidate);
    const int64_t groups = std::min(tensor.group_count(), kMaxGroups);
    if (groups < kMinGroups) return std::nullopt;
    std::vector<uint8_t> q(static_cast<size_t>(candidate.group_size));
    int64_t with_zero = 0;
    // From the middle, because the first rows of an embedding may be special; neighbours, to read few pages.
    const int64_t first = (tensor.group_count() - groups) / 2;
    for (int64_t i = 0; i < groups; ++i) {
      tensor.Unpack(first + i, q.data());
      with_zero += std::find(q.begin(), q.end(), 0) != q.end();
    }
    if (static_cast<double>(with_zero) >= kShare * static_cast<double>(groups)) return candidate;
  }
  return std::nullopt;
}

}  // namespace qwen_image
