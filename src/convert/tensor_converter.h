// TensorConverter: reads a tensor in pieces, writes it in another encoding, and measures what that changed.
// Memory does not grow with the tensor, except for the scales and biases of one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "convert/plan.h"
#include "convert/tensor_error.h"
#include "core/threads.h"
#include "files/safetensors_writer.h"
#include "qwen_image/cancel.h"
#include "weights/tensor.h"

namespace qwen_image::convert {

// Changes values on their way, rows [first_row, first_row + rows) of a tensor: where LoRAs are merged.
// Called from several threads at once.
using RowEdit = std::function<void(const std::string& name, int64_t first_row, int64_t rows, float* values)>;

class TensorConverter {
 public:
  // `on_bytes` hears how many of the source's bytes were read since it was called before.
  TensorConverter(ThreadPool& pool, const CancelFlag& cancel, RowEdit edit,
                  std::function<void(int64_t bytes)> on_bytes)
      : pool_(pool), cancel_(cancel), edit_(std::move(edit)), on_bytes_(std::move(on_bytes)) {}

  // Appends the tensors of plan.Stored() to `writer`. Errors are measured against the edited values. Throws
  // Error kBadInput for values that are not finite or that the encoding cannot hold, kInterrupted, …
  TensorError Convert(const TensorPlan& plan, const WeightTensor& source, SafetensorsWriter& writer);

 private:
  struct Piece;
  void Copy(const WeightTensor& source, SafetensorsWriter& writer);
  void Read(const WeightTensor& source, const Piece& piece, int64_t first, int64_t count, float* to) const;
  TensorError ConvertPiece(const TensorPlan& plan, const WeightTensor& source, const Piece& piece);

  ThreadPool& pool_;
  const CancelFlag& cancel_;
  RowEdit edit_;
  std::function<void(int64_t bytes)> on_bytes_;
  std::vector<float> values_, scratch_;     // of a piece
  std::vector<std::byte> encoded_;          // of a piece
  std::vector<std::byte> scales_, biases_;  // of the tensor: they follow its values in the file
};

}  // namespace qwen_image::convert
