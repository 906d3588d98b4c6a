// WeightBinder: takes tensors out of a WeightStore by name and shape. Whatever is missing, misshapen, of a
// wrong type or left over is collected and thrown as one error, so that nothing is ever left at a random or
// zero value.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "kernels/weight_matrix.h"
#include "weights/store.h"
#include "weights/updates.h"

namespace qwen_image {

class WeightBinder {
 public:
  // `updates`: what is added to the weights. Finish() checks that all of it was.
  explicit WeightBinder(WeightStore& store, WeightUpdates* updates = nullptr)
      : store_(store), updates_(updates) {}

  // Both return something empty (data == nullptr, no elements) when the tensor is missing or does not fit; it
  // must not be used before Finish() has returned.
  //
  // A matrix that stays in the file. `shape` may have more than two dimensions: the last ones are merged into
  // cols.
  WeightMatrix Matrix(const std::string& name, const Shape& shape);
  // A small tensor, copied and converted to float.
  std::vector<float> Floats(const std::string& name, const Shape& shape);

  // What is added to the linear layer `name`, whose weight is [out, in].
  std::vector<LowRankUpdate> Updates(const std::string& name, int64_t out, int64_t in);

  // Tensors that are legal and not needed: `visual.*`, `*.time_conv.*`, … ('*' matches any text).
  void AllowUnused(std::string_view pattern);

  // Throws Error kBadInput that lists every problem found; what is the same in many blocks is a line.
  void Finish();

 private:
  // The tensor if it is there with this shape and readable, else null and the problem is noted. Settles the
  // quantization of packed weights by the shape.
  const WeightTensor* Take(const std::string& name, const Shape& shape);
  std::vector<std::string> Unexpected() const;
  std::string PrefixHint(const std::vector<std::string>& unexpected) const;

  WeightStore& store_;
  WeightUpdates* updates_;
  std::set<std::string> taken_;
  std::vector<std::string> unused_patterns_;
  // A tensor, and what is wrong with it: "has shape [1, 2], expected [2, 1]".
  struct Problem {
    std::string name, text;
  };
  static void AddLines(const std::vector<Problem>& problems, std::string& message);

  std::map<std::string, Shape> missing_;
  std::vector<Problem> misshapen_, unreadable_;
};

}  // namespace qwen_image
