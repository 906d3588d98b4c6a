// How long a step of the transformer takes on this machine: arithmetic divided by a speed that is measured on
// one of the model's own matrices.
#pragma once

#include "core/threads.h"
#include "families/qwen_image/transformer.h"

namespace qwen_image {

class StepEstimate {
 public:
  StepEstimate(const Transformer& transformer, ThreadPool& pool);  // takes about a third of a second

  double Seconds(TokenGrid grid) const;  // one pass; guidance takes two
  double operations_per_second() const { return speed_; }

 private:
  const TransformerConfig& config_;
  double speed_ = 0;
};

}  // namespace qwen_image
