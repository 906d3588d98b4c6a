// WeightTensor: a tensor as a model sees it (a shape and values), however a file stores it: plain numbers,
// blocks of GGUF, fp8 or int8 with scales, packed MLX groups, convolutions with their channels last.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "files/weight_file.h"
#include "kernels/weight_matrix.h"
#include "weights/mlx_quantized.h"

namespace qwen_image {

// Where a tensor lies.
struct StoredIn {
  const StoredTensor* tensor = nullptr;
  const WeightFile* file = nullptr;
};

class WeightTensor {
 public:
  explicit WeightTensor(StoredIn values);  // plain numbers or blocks
  // fp8 or int8 numbers to be multiplied by `scale`, which holds one number, or one for each row.
  WeightTensor(StoredIn values, StoredIn scale);
  // Packed by MLX, in one of `possible` ways. What the shapes leave open is settled by FitTo or Settle.
  WeightTensor(StoredIn packed, StoredIn scales, StoredIn biases, std::vector<MlxQuantization> possible);

  const Shape& shape() const { return shape_; }  // of the values, in torch's order
  std::string Format() const;                    // "BF16", "Q4_K", "F8_E4M3 ×s", "4-bit g64"
  // Why the values cannot be read; empty if they can.
  const std::string& problem() const { return problem_; }
  void set_problem(std::string text) { problem_ = std::move(text); }

  const StoredIn& stored() const { return values_; }
  const std::vector<StoredIn>& parts() const { return parts_; }  // scales, biases
  int64_t bytes() const;                                         // of the values and the parts
  bool quantized() const;                                        // less than 16 bits a value
  bool channels_last() const { return channels_last_; }
  bool settled() const { return possible_.size() < 2; }  // see FitTo

  // A convolution that is stored as [out, kernel…, in].
  void SetChannelsLast();
  // Chooses the MLX quantization that gives the wanted shape, adds or drops 1s at its end, unfolds what
  // GGUF folds. False if the shape cannot be had.
  bool FitTo(const Shape& wanted);
  // Chooses the MLX quantization that the values speak for, where nobody knows the shape.
  void Settle();

  // The matrix [rows, row_size]; not for channels_last.
  WeightMatrix Matrix() const;
  // Values of rows [first, first + count), each all that belongs to one index of the first dimension; of a
  // channels-last convolution too, in torch's order.
  void ReadRows(int64_t first, int64_t count, float* to) const;
  std::vector<float> Values() const;  // all
  int64_t rows() const;               // a vector is one row
  int64_t row_size() const;

  void ReleasePages() const;  // see MappedFile

 private:
  void UseMlx(MlxQuantization quantization);

  StoredIn values_;
  std::vector<StoredIn> parts_;
  Shape shape_;
  DType dtype_ = DType::kF32;
  std::shared_ptr<const WeightCoding> coding_;
  std::vector<MlxQuantization> possible_;  // of packed values: one when it is settled
  bool channels_last_ = false;
  std::string problem_;
};

}  // namespace qwen_image
