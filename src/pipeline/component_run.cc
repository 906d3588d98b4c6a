#include "pipeline/component_run.h"

#include "core/fail.h"
#include "files/text.h"
#include "model/latents.h"
#include "model/prompt.h"
#include "pipeline/stages.h"

namespace qwen_image {
namespace {

// A dimension of −1 may be anything from 1 on.
void CheckShape(const std::string& name, const Shape& got, const Shape& want) {
  bool fits = got.size() == want.size();
  for (size_t i = 0; fits && i < want.size(); ++i) fits = want[i] < 0 ? got[i] > 0 : got[i] == want[i];
  if (!fits) {
    Fail(ErrorKind::kBadInput,
         "the reference's {} has the shape {}, but this model and size need {} (-1: any length)", name,
         ToString(got), ToString(want));
  }
}

Tensor Need(const ComponentInputs& inputs, const std::string& name, const Shape& shape) {
  std::optional<Tensor> tensor = inputs.Floats(name);
  if (!tensor)
    Fail(ErrorKind::kBadInput, "the reference run holds no tensor {}, which this component reads", name);
  CheckShape(name, tensor->shape(), shape);
  return *std::move(tensor);
}

void RunTextEncoder(const Pipeline::Impl& model, const Run& run, const ComponentInputs& inputs) {
  const auto encode = [&](const std::string& name, Which which) {
    const auto ids = inputs.Ids(name);
    if (!ids) return false;
    const int64_t dropped = kTextToImageTemplate.dropped_tokens;
    if (static_cast<int64_t>(ids->size()) <= dropped)
      Fail(ErrorKind::kBadInput, "the reference's {} has {} tokens, no more than the {} of the template",
           name, ids->size(), dropped);
    EncodeIds(model, run, *ids, which);
    return true;
  };
  if (!encode("input_ids", Which::kPositive))
    Fail(ErrorKind::kBadInput, "the reference run holds no tensor input_ids, which the text encoder reads");
  if (run.settings.guided()) encode("negative_input_ids", Which::kNegative);
}

void RunTransformer(const Pipeline::Impl& model, const Run& run, const ComponentInputs& inputs) {
  const Settings& s = run.settings;
  const TransformerConfig& config = model.transformer.config();
  const Shape text = {1, -1, config.joint_attention_dim};
  const Tensor embeds = Need(inputs, "prompt_embeds", text);
  std::optional<Tensor> negative_embeds;
  if (s.guided()) negative_embeds = Need(inputs, "negative_prompt_embeds", text);
  const Schedule schedule = MakeTappedSchedule(model, run);

  int64_t steps_run = 0;
  for (int64_t step = 0; step < s.steps; ++step) {
    const std::string name = fmt::format("packed_latents_step{}", step);
    std::optional<Tensor> latents = inputs.Floats(name);
    if (!latents) continue;  // a reference may hold some steps only
    CheckShape(name, latents->shape(), {1, s.grid.height * s.grid.width, config.in_channels});
    const float timestep = schedule.timesteps[static_cast<size_t>(step)] / 1000.0f;
    Tensor velocity = PredictNoise(model, run, *latents, embeds,
                                   negative_embeds ? &*negative_embeds : nullptr, timestep, step);
    run.tap(fmt::format("noise_pred_step{}", step), velocity);
    ++steps_run;
  }
  if (steps_run == 0) {
    Fail(ErrorKind::kBadInput,
         "the reference run holds no tensor packed_latents_stepN, which the transformer reads");
  }
}

std::vector<uint8_t> RunVae(const Pipeline::Impl& model, const Run& run, const ComponentInputs& inputs) {
  const Settings& s = run.settings;
  const int64_t z_dim = model.vae.config().z_dim;
  if (auto latents = inputs.Floats("vae/pre_decode_latents")) {
    CheckShape("vae/pre_decode_latents", latents->shape(), {1, z_dim, 1, s.height / 8, s.width / 8});
    return ToRgb(model, DecodePicture(model, run, *std::move(latents)));
  }
  const Tensor packed = Need(inputs, "final_latents_packed", {1, s.grid.height * s.grid.width, 4 * z_dim});
  Tensor latents = UnpackLatents(packed, z_dim, s.grid);
  DenormalizeLatents(model.vae.config(), latents);
  return ToRgb(model, DecodePicture(model, run, std::move(latents)));
}

}  // namespace

std::optional<std::vector<uint8_t>> RunComponent(const Pipeline& pipeline, Component component,
                                                 const GenerateRequest& request,
                                                 const ComponentInputs& inputs, const GenerateHooks& hooks) {
  const Pipeline::Impl& model = pipeline.impl();
  pipeline.Check(request);
  const Settings settings = ResolveSettings(request, model.defaults, model.vae.config().z_dim);
  const CancelFlag never;
  const Compute compute{model.pool, hooks.cancel ? *hooks.cancel : never};
  const Run run{request, settings, compute, hooks.checkpoints ? Tap(hooks.checkpoints) : Tap()};
  switch (component) {
    case Component::kTextEncoder:
      RunTextEncoder(model, run, inputs);
      return std::nullopt;
    case Component::kTransformer:
      RunTransformer(model, run, inputs);
      return std::nullopt;
    case Component::kVae:
      return RunVae(model, run, inputs);
    case Component::kVisionEncoder:
      break;  // runs with the text encoder
  }
  Fail(ErrorKind::kInternal, "unknown component");
}

}  // namespace qwen_image
