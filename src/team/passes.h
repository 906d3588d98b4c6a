// The denoiser's passes of a run, on each of several machines.
#pragma once

#include <memory>
#include <vector>

#include "families/model.h"
#include "machines/session.h"

namespace qwen_image::team {

// Cut by tokens: two prompts go to two halves of the machines. Where their number is odd, or a listener wants
// to see both, all machines take both. Each half, or all, split the work of a prompt (split/split_ops.h). Cut
// by blocks: both prompts pass all machines, one behind the other (split/row_ops.h).
class TeamPass {
 public:
  // The same on all machines. All that is given must outlive the pass; `inner` is this machine's denoiser.
  // `compute` may have a cancel flag and be asked for progress on the first machine only.
  TeamPass(const Denoiser& inner, const Conditions& conditions, const machines::Session& session, Split split,
           const Compute& compute);

  // On all machines at once. Whole on the first one only. Throws Error kInterrupted on all if the first one
  // was cancelled.
  std::vector<Tensor> Predict(const Tensor& latents, float timestep, std::span<const Tap> taps);

 private:
  void Start(bool watched);
  void AllContinue(double fraction);
  std::vector<Tensor> PredictInHalves(const Tensor& latents, float timestep, const Tap& tap);

  const Denoiser& inner_;
  const Conditions& conditions_;
  const machines::Session& session_;
  const Split split_;
  const Compute& outer_;
  const CancelFlag never_;
  bool watched_ = false;
  bool halves_ = false;
  std::unique_ptr<machines::Group> group_;
  std::unique_ptr<Compute> compute_;
  std::unique_ptr<DenoiserPass> pass_;
};

// A listener of the first machine, as all machines ask and call it: together, with the same answers.
class SharedSink final : public CheckpointSink {
 public:
  // `tap` is empty on all machines but the first.
  SharedSink(const machines::Group& all, Tap tap) : all_(all), tap_(std::move(tap)) {}

  bool Wants(std::string_view name) const override;
  void OnCheckpoint(const std::string& name, const CheckpointView& view) override;

 private:
  const machines::Group& all_;
  const Tap tap_;
};

}  // namespace qwen_image::team
