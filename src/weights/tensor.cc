#include "weights/tensor.h"

#include <algorithm>
#include <array>

#include "core/fail.h"
#include "files/text.h"
#include "kernels/block_coding.h"
#include "kernels/rotated_int8.h"

namespace qwen_image {
namespace {

// GGUF drops dimensions of 1 at the end, mflux those of a gamma.
Shape WithoutOnes(Shape shape) {
  while (!shape.empty() && shape.back() == 1) shape.pop_back();
  return shape;
}

// A convolution [out, in, height, width] as one of a video model whose kernel is a frame deep.
Shape WithFrame(Shape shape) {
  if (shape.size() == 4) shape.insert(shape.begin() + 2, 1);
  return shape;
}

// ggml has four dimensions: convolutions with five are saved as [out · in, frames, height, width].
bool IsFolded(const Shape& shape, const Shape& wanted) {
  if (shape.empty() || wanted.size() != 5 || ElementCount(shape) != ElementCount(wanted)) return false;
  return WithoutOnes({shape.begin() + 1, shape.end()}) == WithoutOnes({wanted.begin() + 2, wanted.end()});
}

// Whether the values in their order can be had in the other shape.
bool IsSameOtherwise(const Shape& shape, const Shape& wanted) {
  const Shape framed = WithFrame(wanted), plain = WithoutOnes(shape);
  return plain == WithoutOnes(wanted) || plain == WithoutOnes(framed) || IsFolded(shape, framed);
}

std::vector<float> ReadScales(const StoredTensor& stored) {
  const BlockFormat& format = FormatOf(stored.dtype);
  if (!format.decode || format.values != 1) return {};
  std::vector<float> values(static_cast<size_t>(ElementCount(stored.shape)));
  format.decode(stored.bytes.data(), static_cast<int64_t>(values.size()), values.data());
  return values;
}

}  // namespace

WeightTensor::WeightTensor(StoredIn values) : values_(values), shape_(values.tensor->shape) {
  const StoredTensor& stored = *values.tensor;
  if (IsComputeType(stored.dtype)) {
    dtype_ = stored.dtype;
    return;
  }
  const BlockFormat& format = FormatOf(stored.dtype);
  if (!format.decode) {
    problem_ = {IsPlain(stored.dtype) ? TensorProblem::Kind::kNoWeights : TensorProblem::Kind::kNotRead,
                fmt::format("has type {}, which this version does not read", format.name)};
  } else if (stored.dtype == DType::kI8) {
    problem_ = {TensorProblem::Kind::kNoWeights, "has type I8 without a scale"};
  } else {
    coding_ = MakeBlockCoding(format);
  }
}

WeightTensor::WeightTensor(StoredIn values, StoredIn scale)
    : values_(values), parts_({scale}), shape_(values.tensor->shape) {
  const BlockFormat& format = FormatOf(values.tensor->dtype);
  if (!format.decode) {
    problem_ = {TensorProblem::Kind::kNotRead,
                fmt::format("has type {} and a scale, which this version does not read", format.name)};
    return;
  }
  std::vector<float> scales = ReadRowScales();
  if (!scales.empty()) coding_ = MakeBlockCoding(format, std::move(scales));
}

WeightTensor::WeightTensor(StoredIn values, StoredIn scale, int64_t rotated_group)
    : values_(values), parts_({scale}), shape_(values.tensor->shape), rotated_group_(rotated_group) {
  if (values.tensor->dtype != DType::kI8 || shape_.size() != 2) {
    problem_ = {
        TensorProblem::Kind::kPartsDoNotFit,
        fmt::format("is stored rotated (comfy_quant convrot), but has type {} and shape {}; a matrix of "
                    "I8 is expected",
                    NameOf(values.tensor->dtype), ToString(shape_))};
    return;
  }
  if (const std::string why = WhyNotRotated(rotated_group, row_size()); !why.empty()) {
    problem_ = {TensorProblem::Kind::kNotRead,
                fmt::format("is stored rotated (comfy_quant convrot) in {}", why)};
    return;
  }
  std::vector<float> scales = ReadRowScales();
  if (!scales.empty()) coding_ = MakeRotatedInt8Coding(rotated_group, std::move(scales));
}

std::vector<float> WeightTensor::ReadRowScales() {
  const StoredTensor& stored = *parts_[0].tensor;
  std::vector<float> scales = ReadScales(stored);
  const auto count = static_cast<int64_t>(scales.size());
  const bool a_row_each = count == rows() && WithoutOnes(stored.shape).size() <= 1;
  if (count == 1 || (count > 0 && a_row_each)) return scales;
  const bool blockwise = stored.shape.size() == 2 && count > 1;
  problem_ = {blockwise ? TensorProblem::Kind::kNotRead : TensorProblem::Kind::kPartsDoNotFit,
              fmt::format("its scale has type {} and shape {}; one number, or one for each of {} rows, is "
                          "expected{}",
                          NameOf(stored.dtype), ToString(stored.shape), rows(),
                          blockwise ? " (one for each block is not read by this version)" : "")};
  return {};
}

WeightTensor::WeightTensor(StoredIn packed, StoredIn scales, StoredIn biases,
                           std::vector<MlxQuantization> possible)
    : values_(packed),
      parts_({scales, biases}),
      shape_(packed.tensor->shape),
      possible_(std::move(possible)) {
  if (possible_.size() == 1) UseMlx(possible_[0]);
}

WeightTensor::WeightTensor(StoredIn values, std::vector<StoredIn> parts, TensorProblem problem)
    : values_(values), parts_(std::move(parts)), shape_(values.tensor->shape), problem_(std::move(problem)) {}

void WeightTensor::Describe(std::string format, Shape shape) {
  described_ = std::move(format);
  shape_ = std::move(shape);
}

void WeightTensor::UseMlx(MlxQuantization quantization) {
  const MlxQuantizedTensor checked("", *values_.tensor, *parts_[0].tensor, *parts_[1].tensor, quantization);
  chosen_ = quantization;
  shape_ = checked.shape();
  coding_ = MakeMlxCoding(checked.groups());
}

std::string WeightTensor::Format() const {
  if (!described_.empty()) return described_;
  if (chosen_) return fmt::format("{}-bit g{}", chosen_->bits, chosen_->group_size);
  if (!possible_.empty()) return "packed";
  return fmt::format("{}{}{}", NameOf(values_.tensor->dtype), parts_.empty() ? "" : " ×s",
                     rotated_group_ ? fmt::format(" R{}", rotated_group_) : "");
}

int64_t WeightTensor::bytes() const {
  auto total = static_cast<int64_t>(values_.tensor->bytes.size());
  for (const StoredIn& part : parts_) total += static_cast<int64_t>(part.tensor->bytes.size());
  return total;
}

bool WeightTensor::quantized() const {
  return !possible_.empty() || (coding_ && values_.tensor->dtype != DType::kF64);
}

int64_t WeightTensor::rows() const { return shape_.size() < 2 ? 1 : shape_[0]; }

int64_t WeightTensor::row_size() const {
  return shape_.size() < 2 ? ElementCount(shape_) : ElementCount(Shape(shape_.begin() + 1, shape_.end()));
}

void WeightTensor::SetChannelsLast() {
  channels_last_ = true;
  shape_.insert(shape_.begin() + 1, shape_.back());
  shape_.pop_back();
}

void WeightTensor::ChooseQuantizationFor(const Shape& wanted) {
  if (possible_.size() < 2 || wanted.empty()) return;
  const int64_t groups = parts_[0].tensor->shape.back();
  for (const MlxQuantization& candidate : possible_) {
    if (groups * candidate.group_size == wanted.back()) return UseMlx(candidate);
  }
}

bool WeightTensor::FitTo(const Shape& wanted) {
  ChooseQuantizationFor(wanted);
  if (!settled()) return false;  // the shape is that of the packed words, not of values
  if (shape_ == wanted) return true;
  if (channels_last_ || !IsSameOtherwise(shape_, wanted)) return false;
  shape_ = wanted;
  return true;
}

void WeightTensor::ChooseQuantization() {
  if (settled()) return;
  const auto likely = LikelyMlxQuantization(NameOf(values_.tensor->dtype), *values_.tensor, *parts_[0].tensor,
                                            *parts_[1].tensor);
  if (likely) return UseMlx(*likely);
  for (const MlxQuantization& candidate : possible_) {
    const bool same_group = hint_.group_size == 0 || candidate.group_size == hint_.group_size;
    if (candidate.bits == hint_.bits && same_group) return UseMlx(candidate);
  }
}

WeightMatrix WeightTensor::Matrix() const {
  return {.data = values_.tensor->bytes.data(),
          .dtype = dtype_,
          .rows = rows(),
          .cols = row_size(),
          .coding = coding_};
}

void WeightTensor::ReadRows(int64_t first, int64_t count, float* to) const {
  const WeightMatrix matrix = Matrix();
  if (!channels_last_) {
    for (int64_t r = 0; r < count; ++r) DecodeRow(matrix, first + r, 0, matrix.cols, to + r * matrix.cols);
    return;
  }
  const int64_t in = shape_[1], area = matrix.cols / std::max<int64_t>(in, 1);
  std::vector<float> row(static_cast<size_t>(matrix.cols));
  for (int64_t r = 0; r < count; ++r, to += matrix.cols) {
    DecodeRow(matrix, first + r, 0, matrix.cols, row.data());
    for (int64_t k = 0; k < area; ++k) {
      for (int64_t i = 0; i < in; ++i) to[i * area + k] = row[static_cast<size_t>(k * in + i)];
    }
  }
}

std::vector<float> WeightTensor::Values() const {
  const int64_t count = ElementCount(shape_);
  std::vector<float> values(static_cast<size_t>(count));
  if (values.empty()) return values;
  if (channels_last_ || (coding_ && coding_->scales_rows())) {
    ReadRows(0, rows(), values.data());
  } else {  // in one go: a block may hold several rows of a small tensor
    WeightMatrix flat = Matrix();
    flat.rows = 1;
    flat.cols = count;
    DecodeRow(flat, 0, 0, count, values.data());
  }
  return values;
}

void WeightTensor::ReleasePages() const {
  qwen_image::ReleasePages(values_.tensor->bytes);
  for (const StoredIn& part : parts_) qwen_image::ReleasePages(part.tensor->bytes);
}

bool WeightTensor::HasNumbers() const {
  if (problem_.kind == TensorProblem::Kind::kNone) return settled();
  return problem_.kind == TensorProblem::Kind::kNoWeights;
}

void WeightTensor::ReadNumbers(int64_t first, int64_t count, double* to) const {
  const StoredTensor& stored = *values_.tensor;
  if (parts_.empty() && IsPlain(stored.dtype)) {  // not through float, which would round integers and F64
    const auto size = static_cast<int64_t>(SizeOf(stored.dtype));
    return ConvertElements(stored.dtype, stored.bytes.data() + first * size, count, to);
  }
  std::array<float, kMaxPiece> values;
  WeightMatrix matrix = Matrix();
  if (!coding_ || !coding_->scales_rows()) {  // in one go: a block may hold several rows of a small tensor
    matrix.cols *= matrix.rows;
    matrix.rows = 1;
  }
  for (int64_t done = 0; done < count;) {
    const int64_t row = (first + done) / matrix.cols, column = (first + done) % matrix.cols;
    const int64_t now = std::min(count - done, matrix.cols - column);
    DecodeRow(matrix, row, column, now, values.data());
    std::copy_n(values.begin(), now, to + done);
    done += now;
  }
}

void WeightTensor::ReleasePages(int64_t first, int64_t count) const {
  // In 128 bits: the product of a hostile size might not fit.
  const auto release = [&](const StoredTensor& stored) {
    const auto byte = [&](int64_t value) {
      const auto bytes =
          static_cast<__int128>(stored.bytes.size()) * value / std::max<int64_t>(NumberCount(), 1);
      return static_cast<size_t>(bytes);
    };
    qwen_image::ReleasePages(stored.bytes.subspan(byte(first), byte(first + count) - byte(first)));
  };
  release(*values_.tensor);
  for (const StoredIn& part : parts_) release(*part.tensor);
}

}  // namespace qwen_image
