#include "team/team_model.h"

#include <algorithm>
#include <utility>

#include "core/fail.h"
#include "mlx/weight_forms.h"
#include "team/facts.h"
#include "team/passes.h"

namespace qwen_image::team {
namespace {

class LeadingPass final : public DenoiserPass {
 public:
  LeadingPass(const Denoiser& inner, Conditions conditions, const machines::Session& session, Split split,
              const Compute& compute)
      : session_(session),
        split_(split),
        conditions_(std::move(conditions)),
        pass_(inner, conditions_, session, split, compute) {
    Tell(session_, Call::kStart, OwnedConditions::Write(conditions_));
  }

  std::vector<Tensor> Predict(const Tensor& latents, float timestep, std::span<const Tap> taps) override {
    Writer message;
    message.Put(latents);
    message.Put(timestep);
    const bool watched = static_cast<bool>(taps.front());
    if (watched && split_ == Split::kLayers)
      Fail(ErrorKind::kUsage,
           "machines that have some of the blocks each cannot record; use --split sequence");
    message.Put(watched);
    Tell(session_, Call::kPredict, message);
    try {
      return watched ? PredictWatched(latents, timestep, taps) : pass_.Predict(latents, timestep, taps);
    } catch (const Error& error) {
      // All stop between two blocks; whatever else happens here the others do not know of, and wait.
      if (error.kind() != ErrorKind::kInterrupted) session_.Fail();
      throw;
    } catch (...) {
      session_.Fail();
      throw;
    }
  }

 private:
  std::vector<Tensor> PredictWatched(const Tensor& latents, float timestep, std::span<const Tap> taps) {
    std::vector<SharedSink> sinks;
    for (const Tap& tap : taps) sinks.emplace_back(session_.all(), tap);
    std::vector<Tap> shared;
    for (SharedSink& sink : sinks) shared.emplace_back(&sink);
    return pass_.Predict(latents, timestep, shared);
  }

  const machines::Session& session_;
  const Split split_;
  const Conditions conditions_;
  TeamPass pass_;
};

class LeadingDenoiser final : public Denoiser {
 public:
  LeadingDenoiser(const Denoiser& inner, const machines::Session& session, Split split)
      : inner_(inner), session_(session), split_(split) {}

  std::unique_ptr<DenoiserPass> Start(Conditions conditions, const Compute& compute) const override {
    Tell(session_, Call::kMemory);
    conditions.available_memory = LeastMemory(session_);
    return std::make_unique<LeadingPass>(inner_, std::move(conditions), session_, split_, compute);
  }
  void Guide(const Tensor& negative, float scale, Tensor& positive) const override {
    inner_.Guide(negative, scale, positive);
  }
  Linear TypicalLayer() const override { return inner_.TypicalLayer(); }
  Work WorkOf(TokenGrid grid, int64_t prompt_tokens) const override {
    return inner_.WorkOf(grid, prompt_tokens);
  }

 private:
  const Denoiser& inner_;
  const machines::Session& session_;
  const Split split_;
};

class LeadingModel final : public Model {
 public:
  LeadingModel(std::unique_ptr<const Model> inner, const machines::Session& session, Split split)
      : inner_(std::move(inner)),
        session_(session),
        split_(split),
        denoiser_(inner_->denoiser(), session, split) {}

  const Denoiser& denoiser() const override { return denoiser_; }
  void ReleasePages(std::optional<Component> component) const override {
    Writer message;
    message.Put(component);
    if (!session_.failed()) Tell(session_, Call::kRelease, message);
    inner_->ReleasePages(component);
  }

  const Vocabulary& vocabulary() const override { return inner_->vocabulary(); }
  const ModelTraits& traits() const override { return inner_->traits(); }
  const Conditioner& conditioner() const override { return inner_->conditioner(); }
  const Autoencoder& autoencoder() const override { return inner_->autoencoder(); }
  const std::string& variant() const override { return inner_->variant(); }
  std::string id() const override { return inner_->id(); }
  bool edits() const override { return inner_->edits(); }
  Json EditIdentity() const override { return inner_->EditIdentity(); }
  std::string PipelineClass(const GenerateRequest& request) const override {
    return inner_->PipelineClass(request);
  }
  bool published_size() const override { return inner_->published_size(); }
  const WeightStore* StoreOf(Component component) const override { return inner_->StoreOf(component); }
  const lora::Set& loras() const override { return inner_->loras(); }
  // Of weights that are cut over the machines the first one has its share.
  MemoryNeed EstimateMemory(const Workload& workload) const override {
    MemoryNeed need = inner_->EstimateMemory(workload);
    const int64_t weights = inner_->StoreOf(Component::kTransformer)->total_bytes();
    if (split_ == Split::kLayers) need.denoise -= weights - weights / session_.size();
    return need;
  }
  MlxWeightUse WeightsOnDevice() const override { return inner_->WeightsOnDevice(); }

 private:
  const std::unique_ptr<const Model> inner_;
  const machines::Session& session_;
  const Split split_;
  const LeadingDenoiser denoiser_;
};

}  // namespace

std::unique_ptr<const Model> ShareModel(std::unique_ptr<const Model> model, const ModelCall& call,
                                        const machines::Session& session) {
  const auto blocks = static_cast<int64_t>(model->denoiser().WorkOf({1, 1}, 1).blocks);
  if (call.split == Split::kLayers && blocks < session.size())
    Fail(ErrorKind::kUsage, "{} machines cannot share the model's {} blocks; use fewer, or --split sequence",
         session.size(), blocks);
  const Report own = Examine(*model);
  Tell(session, Call::kOpen, call.Write());
  const auto all = ShareAll(session, own.Write().bytes());
  for (int rank = 1; rank < session.size(); ++rank) {
    const Report other = Report::Read(all[static_cast<size_t>(rank)]);
    if (!other.error.empty()) Fail(ErrorKind::kMachine, "machine {}: {}", session.NameOf(rank), other.error);
    const std::string difference = DifferenceOf(own, other);
    if (!difference.empty()) Fail(ErrorKind::kMachine, "machine {}: {}", session.NameOf(rank), difference);
  }
  return std::make_unique<LeadingModel>(std::move(model), session, call.split);
}

}  // namespace qwen_image::team
