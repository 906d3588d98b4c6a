#include "convert/tensor_converter.h"

#include <algorithm>

#include "core/fail.h"
#include "files/text.h"
#include "weights/quantize_mlx.h"

namespace qwen_image::convert {
namespace {

constexpr int64_t kPieceValues = 4 << 20;   // in memory at a time: 16 MB of floats
constexpr int64_t kTaskValues = 128 << 10;  // of one thread: in its cache
constexpr size_t kCopyBytes = 16 << 20;

// A block of GGUF may hold several rows of a small tensor, which is then read at once.
bool ReadsRowByRow(const WeightTensor& tensor) {
  const WeightMatrix matrix = tensor.Matrix();
  return tensor.channels_last() || !matrix.coding || matrix.cols % matrix.coding->unit() == 0;
}

// Values of some rows, and where their encoded form goes.
struct Rows {
  const float* values;
  int64_t count;
  std::byte* encoded;
  std::byte *scales, *biases;  // of quantized ones
};

// `scratch` has room for the values.
void Encode(const Rows& rows, const Encoding& encoding, float* scratch) {
  if (!encoding.quantized()) return ConvertFromFloat(rows.values, encoding.dtype, rows.count, rows.encoded);
  // MLX would start from numbers of the scales' type.
  for (int64_t i = 0; i < rows.count; ++i) scratch[i] = FloatFromBf16(Bf16FromFloat(rows.values[i]));
  QuantizeMlx(scratch, rows.count / encoding.mlx.group_size, encoding.mlx, encoding.dtype,
              {rows.encoded, rows.scales, rows.biases});
}

void Decode(const Rows& rows, const Encoding& encoding, float* to) {
  if (!encoding.quantized()) return ConvertToFloat(rows.encoded, encoding.dtype, rows.count, to);
  const MlxGroups groups{.bits = encoding.mlx.bits,
                         .group_size = encoding.mlx.group_size,
                         .packed = rows.encoded,
                         .scales = rows.scales,
                         .biases = rows.biases,
                         .scales_dtype = encoding.dtype,
                         .biases_dtype = encoding.dtype};
  groups.Dequantize(0, rows.count / encoding.mlx.group_size, to);
}

TensorError Measure(const float* source, const float* converted, int64_t count) {
  TensorError error{.count = count};
  for (int64_t i = 0; i < count; ++i) {
    const double value = source[i], difference = converted[i] - value;
    error.max_abs = std::max(error.max_abs, std::abs(difference));
    error.squared_error += difference * difference;
    error.squared_source += value * value;
  }
  return error;
}

// All numbers are finite when neither sum is infinite or NaN (squares of floats do not overflow a double).
void CheckFinite(const TensorPlan& plan, const TensorError& error) {
  if (!std::isfinite(error.squared_source)) {
    Fail(ErrorKind::kBadInput,
         "tensor {} holds NaN or infinite values; qwen-image inspect shows what else is wrong with its file",
         Quoted(plan.name));
  }
  if (!std::isfinite(error.squared_error)) {
    Fail(ErrorKind::kBadInput, "tensor {} holds values that {} cannot; keep it with --rule '{}=f32'",
         Quoted(plan.name), plan.choice.encoding.Name(), Printable(plan.name));
  }
}

}  // namespace

// Rows [first, first + count) of a tensor.
struct TensorConverter::Piece {
  int64_t first, count, row_size;
  bool whole;  // the tensor, read at once
};

void TensorConverter::Read(const WeightTensor& source, const Piece& piece, int64_t first, int64_t count,
                           float* to) const {
  if (!piece.whole) return source.ReadRows(first, count, to);
  const std::vector<float> all = source.Values();
  std::copy(all.begin(), all.end(), to);
}

TensorError TensorConverter::ConvertPiece(const TensorPlan& plan, const WeightTensor& source,
                                          const Piece& piece) {
  const Encoding& encoding = plan.choice.encoding;
  const auto dtype_bytes = static_cast<int64_t>(SizeOf(encoding.dtype));
  const int64_t row_size = piece.row_size;
  const int64_t row_bytes = encoding.quantized() ? row_size * encoding.mlx.bits / 8 : row_size * dtype_bytes;
  const int64_t row_scales =
      encoding.quantized() ? row_size / encoding.mlx.group_size * dtype_bytes : 0;  // bytes
  values_.resize(static_cast<size_t>(piece.count * row_size));
  scratch_.resize(values_.size());
  encoded_.resize(static_cast<size_t>(piece.count * row_bytes));

  const int64_t task_rows = std::max<int64_t>(1, kTaskValues / std::max<int64_t>(row_size, 1));
  const int64_t tasks = (piece.count + task_rows - 1) / task_rows;
  std::vector<TensorError> errors(static_cast<size_t>(tasks));
  pool_.ParallelFor(tasks, [&](int64_t task) {
    const int64_t begin = task * task_rows, count = std::min(task_rows, piece.count - begin);
    const int64_t first = piece.first + begin;
    float *values = values_.data() + begin * row_size, *scratch = scratch_.data() + begin * row_size;
    Read(source, piece, first, count, values);
    if (edit_) edit_(plan.name, first, count, values);
    const Rows rows{.values = values,
                    .count = count * row_size,
                    .encoded = encoded_.data() + begin * row_bytes,
                    .scales = scales_.data() + first * row_scales,
                    .biases = biases_.data() + first * row_scales};
    Encode(rows, encoding, scratch);
    Decode(rows, encoding, scratch);
    errors[static_cast<size_t>(task)] = Measure(values, scratch, rows.count);
  });
  TensorError total;
  for (const TensorError& error : errors) total.Add(error);
  return total;
}

TensorError TensorConverter::Convert(const TensorPlan& plan, const WeightTensor& source,
                                     SafetensorsWriter& writer) {
  if (plan.copied) {
    Copy(source, writer);
    return {.count = ElementCount(plan.shape)};
  }
  const Encoding& encoding = plan.choice.encoding;
  const bool whole = !ReadsRowByRow(source);
  const int64_t rows = whole ? 1 : source.rows();
  const int64_t row_size = whole ? ElementCount(source.shape()) : source.row_size();
  const auto stored = plan.Stored();
  if (encoding.quantized()) {
    scales_.resize(static_cast<size_t>(stored[1].bytes()));
    biases_.resize(static_cast<size_t>(stored[2].bytes()));
  }
  TensorError error;
  const int64_t piece_rows = std::max<int64_t>(1, kPieceValues / std::max<int64_t>(row_size, 1));
  for (int64_t first = 0; first < rows; first += piece_rows) {
    cancel_.ThrowIfCancelled();
    const int64_t count = std::min(piece_rows, rows - first);
    error.Add(ConvertPiece(plan, source, {first, count, row_size, whole}));
    CheckFinite(plan, error);
    writer.Append(encoded_);
    source.ReleasePages();
    if (on_bytes_) on_bytes_(source.bytes() * (first + count) / rows - source.bytes() * first / rows);
  }
  if (encoding.quantized()) {
    writer.Append(scales_);
    writer.Append(biases_);
  }
  return error;
}

void TensorConverter::Copy(const WeightTensor& source, SafetensorsWriter& writer) {
  for (const StoredTensor* part :
       {source.stored().tensor, source.parts()[0].tensor, source.parts()[1].tensor}) {
    for (size_t done = 0; done < part->bytes.size(); done += kCopyBytes) {
      cancel_.ThrowIfCancelled();
      const auto piece = part->bytes.subspan(done, std::min(kCopyBytes, part->bytes.size() - done));
      writer.Append(piece);
      source.ReleasePages();
      if (on_bytes_) on_bytes_(static_cast<int64_t>(piece.size()));
    }
  }
}

}  // namespace qwen_image::convert
