// WeightTensor: a tensor as a model sees it (a shape and values), however a file stores it: plain numbers,
// blocks of GGUF, fp8 or int8 with scales, packed MLX groups, convolutions with their channels last.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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
  std::string_view name = {};  // in the file
};

// Why the values of a tensor cannot be had.
struct TensorProblem {
  enum class Kind {
    kNone,
    kNoWeights,      // a type that no weights have; its numbers can still be read
    kMissingScales,  // a part is not there
    kMissingBiases,
    kPartsDoNotFit,  // the parts' shapes or types do not belong together
    kNotRead,        // a way of storing that this version does not read
    kMicroscaled,    // mxfp4, mxfp8 or nvfp4 of MLX: only the shape is known
  };
  Kind kind = Kind::kNone;
  std::string text;  // "has type I64, which this version does not read": follows the tensor's name
};

class WeightTensor {
 public:
  explicit WeightTensor(StoredIn values);  // plain numbers or blocks
  // fp8 or int8 numbers to be multiplied by `scale`, which holds one number, or one for each row.
  WeightTensor(StoredIn values, StoredIn scale);
  // int8 numbers that were rotated in groups of so many (kernels/rotated_int8.h), to be multiplied likewise.
  WeightTensor(StoredIn values, StoredIn scale, int64_t rotated_group);
  // Packed by MLX, in one of `possible` ways. What the shapes leave open is settled by FitTo or
  // ChooseQuantization.
  WeightTensor(StoredIn packed, StoredIn scales, StoredIn biases, std::vector<MlxQuantization> possible);
  // One whose parts are known and whose values cannot be had.
  WeightTensor(StoredIn values, std::vector<StoredIn> parts, TensorProblem problem);
  // The same for a way of storing of which the name and the shape are known.
  void Describe(std::string format, Shape shape);

  const Shape& shape() const { return shape_; }  // of the values, in torch's order
  std::string Format() const;  // "BF16", "Q4_K", "F8_E4M3 ×s", "I8 ×s R256", "4-bit g64", "mxfp4"
  // Why the values cannot be read; empty if they can.
  const std::string& problem() const { return problem_.text; }
  TensorProblem::Kind problem_kind() const { return problem_.kind; }
  void set_problem(TensorProblem problem) { problem_ = std::move(problem); }

  const StoredIn& stored() const { return values_; }
  const std::vector<StoredIn>& parts() const { return parts_; }  // scales, biases
  // A tensor that says how this one is stored (ComfyUI's comfy_quant); null if there is none.
  const StoredIn& note() const { return note_; }
  void set_note(StoredIn note) { note_ = note; }
  int64_t bytes() const;   // of the values and the parts
  bool quantized() const;  // less than 16 bits a value
  bool channels_last() const { return channels_last_; }
  bool settled() const { return possible_.empty() || chosen_.has_value(); }  // see FitTo
  // Of values packed by MLX: all ways of packing that the shapes allow.
  const std::vector<MlxQuantization>& possible() const { return possible_; }

  // A convolution that is stored as [out, kernel…, in].
  void SetChannelsLast();
  // Chooses the MLX quantization that gives the wanted shape, adds or drops 1s at its end, drops the one
  // frame of a convolution, unfolds what GGUF folds. False if the shape cannot be had.
  bool FitTo(const Shape& wanted);
  // Chooses the MLX quantization that gives this shape, if one does.
  void ChooseQuantizationFor(const Shape& wanted);
  // Chooses the MLX quantization where the shape is not known: the one that fits the values, else the hint.
  void ChooseQuantization();
  // What a config or a file's metadata say of its MLX quantization; 0: nothing.
  void set_hint(MlxQuantization hint) { hint_ = hint; }

  // The matrix [rows, row_size]; not for channels_last.
  WeightMatrix Matrix() const;
  // Values of rows [first, first + count), each all that belongs to one index of the first dimension; of a
  // channels-last convolution too, in torch's order.
  void ReadRows(int64_t first, int64_t count, float* to) const;
  std::vector<float> Values() const;  // all
  int64_t rows() const;               // a vector is one row
  int64_t row_size() const;

  void ReleasePages() const;  // see MappedFile

  // All numbers of a file, also those that are not weights, piece by piece and in the order in which they are
  // stored. A piece begins at a multiple of kPieceUnit and has at most kMaxPiece values.
  static constexpr int64_t kPieceUnit = 256, kMaxPiece = 4096;
  bool HasNumbers() const;
  int64_t NumberCount() const { return ElementCount(shape_); }
  void ReadNumbers(int64_t first, int64_t count, double* to) const;
  void ReleasePages(int64_t first, int64_t count) const;  // of these values

 private:
  void UseMlx(MlxQuantization quantization);
  // The numbers of parts_[0]: one, or one for each row. Empty: they are neither, which is then the problem.
  std::vector<float> ReadRowScales();

  StoredIn values_;
  std::vector<StoredIn> parts_;
  Shape shape_;
  std::string described_;  // Format() of what is not read
  DType dtype_ = DType::kF32;
  std::shared_ptr<const WeightCoding> coding_;
  std::vector<MlxQuantization> possible_;
  std::optional<MlxQuantization> chosen_;
  MlxQuantization hint_;
  int64_t rotated_group_ = 0;  // 0: not rotated
  bool channels_last_ = false;
  TensorProblem problem_;
  StoredIn note_;
};

}  // namespace qwen_image
