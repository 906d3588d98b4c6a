#include "team/passes.h"

#include <numeric>

#include "split/row_ops.h"

namespace qwen_image::team {

TeamPass::TeamPass(const Denoiser& inner, const Conditions& conditions, const machines::Session& session,
                   Split split, const Compute& compute)
    : inner_(inner), conditions_(conditions), session_(session), split_(split), outer_(compute) {
  Start(false);
}

void TeamPass::Start(bool watched) {
  watched_ = watched;
  halves_ =
      conditions_.prompts.size() == 2 && session_.size() % 2 == 0 && !watched && split_ == Split::kSequence;
  const int size = halves_ ? session_.size() / 2 : session_.size();
  const int half = session_.rank() / size;
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), half * size);
  pass_.reset();  // give its memory back first
  group_ = std::make_unique<machines::Group>(session_.Of(std::move(ranks)));
  compute_ = std::make_unique<Compute>(Compute{.pool = outer_.pool,
                                               .cancel = never_,
                                               .on_progress = [this](double done) { AllContinue(done); },
                                               .profile = outer_.profile,
                                               .group = group_.get(),
                                               .split = split_});
  Conditions own = conditions_;
  if (halves_) own.prompts = {conditions_.prompts[static_cast<size_t>(half)]};
  pass_ = inner_.Start(std::move(own), *compute_);
}

// Only the first machine knows that a run is to end. Cut by tokens, all ask it as often as each other, so
// that all stop at the same place. Cut by blocks, it tells the one behind it instead of handing anything
// over.
void TeamPass::AllContinue(double fraction) {
  bool cancelled = outer_.cancel.cancelled();
  if (split_ == Split::kSequence) {
    session_.all().Broadcast(0, std::as_writable_bytes(std::span(&cancelled, 1)));
  } else if (cancelled && session_.rank() == 0) {
    split::TellToStop(*group_);
  }
  if (cancelled) throw Error(ErrorKind::kInterrupted, "interrupted");
  if (outer_.on_progress) outer_.on_progress(fraction);
}

std::vector<Tensor> TeamPass::Predict(const Tensor& latents, float timestep, std::span<const Tap> taps) {
  const bool watched = static_cast<bool>(taps.front());
  if (watched != watched_) Start(watched);
  return halves_ ? PredictInHalves(latents, timestep, taps.front()) : pass_->Predict(latents, timestep, taps);
}

std::vector<Tensor> TeamPass::PredictInHalves(const Tensor& latents, float timestep, const Tap& tap) {
  std::vector<Tensor> velocities = pass_->Predict(latents, timestep, {&tap, 1});
  const int giver = session_.size() / 2;  // the first of the other half
  if (session_.rank() == giver) {
    const std::span<const float> values(velocities[0].data(), static_cast<size_t>(velocities[0].size()));
    const machines::Group::Outgoing out{0, std::as_bytes(values)};
    session_.all().Exchange({&out, 1}, {});
  }
  if (session_.rank() == 0) {
    Tensor& other = velocities.emplace_back(velocities[0].shape());
    const std::span<float> values(other.data(), static_cast<size_t>(other.size()));
    const machines::Group::Incoming in{giver, std::as_writable_bytes(values)};
    session_.all().Exchange({}, {&in, 1});
  }
  return velocities;
}

bool SharedSink::Wants(std::string_view name) const {
  bool wants = tap_.Wants(name);
  all_.Broadcast(0, std::as_writable_bytes(std::span(&wants, 1)));
  return wants;
}

void SharedSink::OnCheckpoint(const std::string& name, const CheckpointView& view) {
  if (const auto* const* integers = std::get_if<const int64_t*>(&view.data))
    return tap_(name, *integers, view.shape);
  float* const values = std::get<float*>(view.data);
  tap_(name, values, view.shape);
  all_.Broadcast(0, std::as_writable_bytes(std::span(values, static_cast<size_t>(ElementCount(view.shape)))));
}

}  // namespace qwen_image::team
