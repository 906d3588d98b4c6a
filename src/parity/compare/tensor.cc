#include "parity/compare/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "parity/compare/criterion.h"
#include "parity/compare/stats.h"

namespace qwen_image::compare {
namespace {

constexpr int64_t kPiece = 16384;  // elements of both sides that stay in the cache

template <typename T>
TensorSource MemorySource(const T* data, const Shape& shape, const char* dtype, bool is_float) {
  return {
      .shape = shape,
      .dtype = dtype,
      .is_float = is_float,
      .count = ElementCount(shape),
      .read = [data](int64_t begin, int64_t count, double* out) { std::copy_n(data + begin, count, out); }};
}

}  // namespace

bool SameButForLeadingOnes(const Shape& a, const Shape& b) {
  const auto longer_than_one = [](int64_t size) { return size != 1; };
  return std::equal(std::find_if(a.begin(), a.end(), longer_than_one), a.end(),
                    std::find_if(b.begin(), b.end(), longer_than_one), b.end());
}

TensorSource SourceOf(const record::TensorSet& set, const record::TensorInfo& tensor) {
  return {.shape = tensor.shape,
          .dtype = tensor.dtype,
          .is_float = tensor.is_float,
          .count = tensor.count,
          .read = [&set, &tensor](int64_t begin, int64_t count, double* out) {
            set.Read(tensor, begin, count, out);
          }};
}

TensorSource SourceOf(const float* data, const Shape& shape) {
  return MemorySource(data, shape, "float32", true);
}

TensorSource SourceOf(const int64_t* data, const Shape& shape) {
  return MemorySource(data, shape, "int64", false);
}

TensorComparison CompareTensor(const std::string& name, const TensorSource& ref, const TensorSource& run,
                               const std::function<Criterion(const TensorStats& ref)>& choose) {
  TensorComparison result{.name = name};
  std::vector<double> ref_piece(kPiece), run_piece(kPiece);
  const auto stats_of = [](const TensorSource& source, std::vector<double>& piece) {
    StatsAccumulator accumulator;
    for (int64_t begin = 0; begin < source.count; begin += kPiece) {
      const int64_t count = std::min(kPiece, source.count - begin);
      source.read(begin, count, piece.data());
      accumulator.Add(piece.data(), count);
    }
    return accumulator.Finish();
  };
  result.ref = stats_of(ref, ref_piece);
  result.criterion = choose(result.ref);
  if (!SameButForLeadingOnes(ref.shape, run.shape)) {
    result.problem = fmt::format("shape {}, expected {}", ToString(run.shape), ToString(ref.shape));
  } else if (ref.is_float != run.is_float) {
    result.problem = fmt::format("type {}, expected {}", run.dtype, ref.dtype);
  }
  if (!result.problem.empty()) {
    result.run = stats_of(run, run_piece);
  } else {
    StatsAccumulator run_stats;
    ErrorAccumulator errors(result.ref, result.criterion, ref.dtype == "float32" && run.dtype == "float32");
    for (int64_t begin = 0; begin < ref.count; begin += kPiece) {
      const int64_t count = std::min(kPiece, ref.count - begin);
      ref.read(begin, count, ref_piece.data());
      run.read(begin, count, run_piece.data());
      run_stats.Add(run_piece.data(), count);
      errors.Add(ref_piece.data(), run_piece.data(), count);
    }
    result.run = run_stats.Finish();
    result.error = errors.Finish();
    result.passed = Judge(result.criterion, *result.error, result.ref, result.run);
  }
  result.ref.shape = ref.shape;
  result.ref.dtype = ref.dtype;
  result.run.shape = run.shape;
  result.run.dtype = run.dtype;
  return result;
}

}  // namespace qwen_image::compare
