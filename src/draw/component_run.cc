#include "draw/component_run.h"

#include "core/fail.h"
#include "draw/stages.h"
#include "draw/workbench.h"
#include "files/text.h"

namespace qwen_image::draw {
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

// The pictures of an edit as the reference's vision encoder saw them; none if it was no edit.
VisionImages PicturesIn(const ComponentInputs& inputs) {
  std::optional<Tensor> pixel_values = inputs.Floats("pixel_values");
  const auto grid_values = inputs.Ids("image_grid_thw");
  if (!pixel_values && !grid_values) return {};
  if (!pixel_values || !grid_values || pixel_values->shape().size() != 2 || grid_values->size() % 3 != 0)
    Fail(
        ErrorKind::kBadInput,
        "the reference's pixel_values [patches, values] and image_grid_thw [pictures, 3] do not go together");
  std::vector<ImageGrid> grids;
  for (size_t i = 0; i < grid_values->size(); i += 3)
    grids.push_back({(*grid_values)[i], (*grid_values)[i + 1], (*grid_values)[i + 2]});
  return {.pixel_values = *std::move(pixel_values), .grids = std::move(grids)};
}

EncodedPrompt TakeIds(const Run& run, const std::string& name, std::vector<int64_t> ids,
                      const VisionImages& pictures) {
  try {
    return run.model.conditioner().TakeIds(std::move(ids), pictures, run.prompt_options());
  } catch (const Error& error) {
    Fail(error.kind(), "the reference's {} has {}", name, error.message());
  }
}

void RunTextEncoder(const Run& run, const ComponentInputs& inputs) {
  VisionImages pictures = PicturesIn(inputs);
  const auto encode = [&](const std::string& name, PromptRole role) {
    auto ids = inputs.Ids(name);
    if (!ids) return false;
    EncodeIds(run, TakeIds(run, name, *std::move(ids), pictures), role, pictures);
    return true;
  };
  if (!encode("input_ids", PromptRole::kPositive))
    Fail(ErrorKind::kBadInput, "the reference run holds no tensor input_ids, which the text encoder reads");
  if (run.settings.guided()) encode("negative_input_ids", PromptRole::kNegative);
}

// The reference's embeddings; of an edit also their ids, which tell where its pictures stand.
EncodedText TextIn(const Run& run, const ComponentInputs& inputs, const std::string& prefix) {
  const Shape shape = {1, -1, run.model.conditioner().width()};
  EncodedText text{.embeds = Need(inputs, prefix + "prompt_embeds", shape)};
  const std::string ids_name = prefix + "input_ids";
  auto ids = run.settings.references.empty() ? std::nullopt : inputs.Ids(ids_name);
  if (ids) text.ids = TakeIds(run, ids_name, *std::move(ids), PicturesIn(inputs)).ids_of_embeds();
  return text;
}

void RunTransformer(const Run& run, const ComponentInputs& inputs) {
  const Settings& s = run.settings;
  const Geometry& geometry = run.geometry();
  const EncodedText text = TextIn(run, inputs, "");
  std::optional<EncodedText> negative;
  if (s.guided()) negative = TextIn(run, inputs, "negative_");
  Tensor references;
  if (!s.references.empty()) {
    int64_t tokens = 0;
    for (const EditInputSizes& sizes : s.references) tokens += geometry.GridOf(sizes.vae).tokens();
    references = Need(inputs, "image_latents", {1, tokens, geometry.token_channels()});
  }
  const Schedule schedule = MakeTappedSchedule(run);

  int64_t steps_run = 0;
  Denoising denoising(run, text, negative ? &*negative : nullptr, references);
  for (int64_t step = 0; step < s.steps_run(); ++step) {
    const std::string name = fmt::format("packed_latents_step{}", step);
    std::optional<Tensor> latents = inputs.Floats(name);
    if (!latents) continue;  // a reference may hold some steps only
    CheckShape(name, latents->shape(), geometry.PackedShape(s.grid));
    const float timestep = schedule.timesteps[static_cast<size_t>(step)] / 1000.0f;
    Tensor velocity = denoising.Velocity(*latents, timestep, step);
    run.tap(fmt::format("noise_pred_step{}", step), velocity);
    ++steps_run;
  }
  if (steps_run == 0) {
    Fail(ErrorKind::kBadInput,
         "the reference run holds no tensor packed_latents_stepN, which the transformer reads");
  }
}

// The encoder on the pictures that the reference's saw. What is drawn from its distribution is not repeated
// here: the whole pipeline is the place for that.
// Returns whether there were any.
bool RunVaeEncoder(const Run& run, const ComponentInputs& inputs) {
  for (size_t i = 0;; ++i) {
    const std::optional<Tensor> pixels = inputs.Floats(fmt::format("vae_image{}", i));
    if (!pixels) return i > 0;
    CheckShape(fmt::format("vae_image{}", i), pixels->shape(), {1, run.geometry().pixel_channels, -1, -1});
    EncodePixels(run, *pixels, i);
  }
}

std::optional<Image> RunVae(const Run& run, const ComponentInputs& inputs) {
  const Settings& s = run.settings;
  const Autoencoder& autoencoder = run.model.autoencoder();
  const bool encoded = RunVaeEncoder(run, inputs);
  if (auto latents = inputs.Floats("vae/pre_decode_latents")) {
    CheckShape("vae/pre_decode_latents", latents->shape(), autoencoder.DecodedShape(s.grid));
    return ToImage(run.model, DecodeLatents(run, *std::move(latents)));
  }
  if (encoded && !inputs.Floats("final_latents_packed")) return std::nullopt;
  const Tensor packed = Need(inputs, "final_latents_packed", run.geometry().PackedShape(s.grid));
  return ToImage(run.model, DecodeLatents(run, autoencoder.Unpack(packed, s.grid)));
}

}  // namespace

std::optional<Image> RunComponent(const Pipeline& pipeline, Component component,
                                  const GenerateRequest& request, const ComponentInputs& inputs,
                                  const GenerateHooks& hooks) {
  const Pipeline::Impl& impl = PipelineAccess::ImplOf(pipeline);
  pipeline.Check(request);
  const Settings settings = impl.model.Resolve(request);
  const CancelFlag never;
  const Compute compute{impl.bench.pool, hooks.cancel ? *hooks.cancel : never, {}, hooks.profile};
  const Run run{*impl.model.model, request, settings, compute,
                hooks.checkpoints ? Tap(hooks.checkpoints) : Tap()};
  switch (component) {
    case Component::kTextEncoder:
      RunTextEncoder(run, inputs);
      return std::nullopt;
    case Component::kTransformer:
      RunTransformer(run, inputs);
      return std::nullopt;
    case Component::kVae:
      return RunVae(run, inputs);
    case Component::kVisionEncoder:
      break;  // runs with the text encoder
  }
  Fail(ErrorKind::kInternal, "unknown component");
}

}  // namespace qwen_image::draw
