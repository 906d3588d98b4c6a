// How long a step of the denoiser takes on this machine: arithmetic divided by speeds that are measured on
// one of the model's own matrices.
#pragma once

#include "core/threads.h"
#include "families/model.h"

namespace qwen_image {

class StepEstimate {
 public:
  // Takes about a third of a second; twice that if layers are computed in 8 bits.
  StepEstimate(const Denoiser& denoiser, ThreadPool& pool);

  double Seconds(TokenGrid grid) const;  // one pass; guidance takes two
  // Of such a pass, for estimates of what several machines tell each other.
  Denoiser::Work WorkOf(TokenGrid grid) const;
  // The product that was timed for the layers, which is the one that draws: "int8" or "fp32".
  const char* product() const { return int8_ ? "int8" : "fp32"; }

 private:
  const Denoiser& denoiser_;
  bool int8_ = false;
  double linear_speed_ = 0, attention_speed_ = 0;  // operations a second
};

}  // namespace qwen_image
