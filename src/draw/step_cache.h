// Step caching: between two noise levels the velocity often changes little. While the change that is to be
// expected stays small, the transformer is not asked; its last two answers are continued in a straight line.
//
// What is expected: the relative change of the velocity per unit of sigma, as it was between the last two
// steps, times the distance to the next noise level, summed up since the transformer was asked last.
// (EasyCache estimates the same from the change of the latents, which an Euler step makes the distance in
// sigma times the velocity, and reuses velocity − latents. On the embedded model the line errs 8 dB less than
// that, and than the last velocity alone, as long as the threshold is 0.2 or less.) The first two steps and
// the last one are always computed, and at least one in four. With guidance it is the guided velocity that is
// continued, so that a step saves both passes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/tensor.h"
#include "model/scheduler.h"

namespace qwen_image::draw {

class StepCache {
 public:
  // `threshold`: the sum of relative changes up to which steps are estimated; 0 switches it off.
  StepCache(double threshold, const Schedule& schedule) : threshold_(threshold), schedule_(schedule) {}

  bool on() const { return threshold_ > 0; }
  int64_t reused() const { return reused_; }  // steps that were not computed

  // The velocity of a step, by `compute` or without it. To be called for every step in order.
  template <typename Compute>
  Tensor Velocity(int64_t step, const Compute& compute) {
    if (MayEstimate(step)) return Estimate(step);
    Tensor velocity = compute();
    Computed(step, velocity);
    return velocity;
  }

  // Everything that later steps depend on, after the first one: to be kept in a file.
  struct State {
    std::map<std::string, std::string> numbers;
    std::map<std::string, Tensor> tensors;
  };
  State Save() const;
  std::map<std::string, Shape> StateShapes(const Shape& velocity) const;
  // `state` holds tensors of these shapes. Throws Error kBadInput, and changes nothing then.
  void Restore(State state);

 private:
  bool MayEstimate(int64_t step);
  Tensor Estimate(int64_t step);
  void Computed(int64_t step, const Tensor& velocity);
  double Distance(int64_t from, int64_t to) const;  // between the noise levels of two steps

  double threshold_;
  const Schedule& schedule_;
  Tensor previous_;             // velocity of the step before, computed or estimated
  Tensor computed_, slope_;     // the last computed velocity, and its change per unit of sigma
  int64_t computed_step_ = 0;   // that `computed_` belongs to
  std::optional<double> rate_;  // relative change per unit of sigma
  double expected_ = 0;         // change since the last computed step
  int64_t reused_ = 0;
};

}  // namespace qwen_image::draw
