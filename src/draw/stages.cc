#include "draw/stages.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/fail.h"
#include "keep/identity.h"
#include "weights/nonfinite.h"

namespace qwen_image::draw {
namespace {

// Hidden states of the prompt's own tokens: without the template's first ones, and at most so many.
Tensor CutPromptEmbeds(const Tensor& hidden_states, const EncodedPrompt& prompt) {
  const int64_t tokens = prompt.embeds(), width = hidden_states.dim(2);
  Tensor embeds({1, tokens, width});
  std::copy_n(hidden_states.row(prompt.dropped), tokens * width, embeds.data());
  return embeds;
}

std::string EncodersIdentity(keep::Identities& identities, const VisionImages& pictures) {
  const std::string text_encoder = identities.Of(Component::kTextEncoder);
  return pictures.any() ? text_encoder + " " + identities.Of(Component::kVisionEncoder) : text_encoder;
}

std::string CauseOfNan(const Model& model) {
  constexpr std::chrono::seconds kPatience(10);
  const auto store = [&](Component component) { return model.StoreOf(component); };
  const std::string found = FindNonFinite({store(Component::kVae), store(Component::kTransformer),
                                           store(Component::kTextEncoder), store(Component::kVisionEncoder)},
                                          kPatience);
  return found.empty() ? "the weights are damaged, or the guidance scale does not suit them" : found;
}

}  // namespace

EncodedText EncodeText(const Run& run, PromptMemory memory, const std::string& prompt, PromptRole role,
                       VisionImages& pictures) {
  const bool negative = role == PromptRole::kNegative;
  const EncodedPrompt encoded = run.model.conditioner().Tokenize(prompt, pictures, run.prompt_options());
  run.tap(negative ? "negative_input_ids" : "input_ids", encoded.ids.data(),
          {1, static_cast<int64_t>(encoded.ids.size())});

  EncodedText text{.embeds = {},
                   .ids = encoded.ids_of_embeds(),
                   .prompt_tokens = encoded.prompt_tokens,
                   .truncated = encoded.truncated || encoded.own_ids() > encoded.most_embeds};
  // Whoever watches the run wants to see the text encoder at work.
  if (run.tap) {
    text.embeds = EncodeIds(run, encoded, role, pictures);
    return text;
  }
  const keep::PromptKey key{
      .text_encoder = memory.prompts.on_disk() ? EncodersIdentity(memory.identities, pictures) : "",
      .ids = encoded.ids,
      .pictures = DigestOf(pictures),
      .dropped = encoded.dropped,
      .tokens = encoded.embeds(),
      .width = run.model.conditioner().width()};
  std::optional<Tensor> known = memory.prompts.Find(key);
  text.from_cache = known.has_value();
  text.embeds = known ? *std::move(known) : EncodeIds(run, encoded, role, pictures);
  if (!text.from_cache) memory.prompts.Keep(key, text.embeds);
  return text;
}

Tensor EncodeIds(const Run& run, const EncodedPrompt& prompt, PromptRole role, VisionImages& pictures) {
  const bool negative = role == PromptRole::kNegative;
  const Conditioner& conditioner = run.model.conditioner();
  if (pictures.any() && pictures.features.empty()) {
    const auto profiled = Profile::Scope::Component(run.compute.profile, "vision_encoder");
    conditioner.Embed(pictures, run.VisionPass(), run.tap.Under("text_encoder/"));
  }
  const auto profiled = Profile::Scope::Component(run.compute.profile, "text_encoder");
  Conditioner::OnPositions on_positions;
  if (run.tap) {
    on_positions = [&](const std::vector<int64_t>& positions) {
      const auto tokens = static_cast<int64_t>(prompt.ids.size());
      run.tap(negative ? "negative_position_ids" : "position_ids", positions.data(),
              {static_cast<int64_t>(positions.size()) / tokens, 1, tokens});
    };
  }
  const Tap encoder_tap = run.tap.Under(negative ? "text_encoder.neg/" : "text_encoder/");
  const Tensor hidden_states =
      conditioner.Encode(prompt, pictures, run.PassFor(role), encoder_tap, on_positions);
  Tensor embeds = CutPromptEmbeds(hidden_states, prompt);
  run.tap(negative ? "negative_prompt_embeds" : "prompt_embeds", embeds);
  const std::vector<int64_t> mask(static_cast<size_t>(embeds.dim(1)), 1);  // one prompt at a time: no padding
  run.tap(negative ? "negative_prompt_embeds_mask" : "prompt_embeds_mask", mask.data(), {1, embeds.dim(1)});
  return embeds;
}

Tensor DrawNoise(const Run& run, TorchGenerator& generator) {
  const TokenGrid grid = run.settings.grid;
  Tensor noise;
  if (run.request.latents) {
    noise = Tensor(run.request.latents->shape);
    std::copy_n(run.request.latents->values.data(), noise.size(), noise.data());
  } else {
    noise = Tensor(run.geometry().PlainShape(grid));
    generator.Normal(noise.data(), noise.size());
  }
  if (noise.shape() != run.geometry().PackedShape(grid)) noise = run.model.autoencoder().Pack(noise, grid);
  if (run.settings.strength) run.tap("noise_packed", noise);
  return noise;
}

Schedule MakeTappedSchedule(const Run& run) {
  Schedule schedule = ScheduleOf(run.model.traits().scheduler, run.settings);
  run.tap("sigmas", schedule.sigmas.data(), {run.settings.steps_run() + 1});
  run.tap("timesteps", schedule.timesteps.data(), {run.settings.steps_run()});
  return schedule;
}

Denoising::Denoising(const Run& run, const EncodedText& text, const EncodedText* negative,
                     const Tensor& references, const std::function<void(const std::string&)>& note)
    : run_(run), guided_(negative != nullptr) {
  Conditions conditions{.prompts = {{&text.embeds, text.ids}}, .drawn = run.settings.grid};
  if (negative) conditions.prompts.push_back({&negative->embeds, negative->ids});
  if (references.size() > 0) conditions.references = &references;
  conditions.on_note = note;
  for (const EditInputSizes& sizes : run.settings.references)
    conditions.reference_grids.push_back(run.geometry().GridOf(sizes.vae));
  pass_ = run.model.denoiser().Start(std::move(conditions), run.compute);
}

Tensor Denoising::Velocity(const Tensor& latents, float timestep, int64_t step) {
  const auto profiled = Profile::Scope::Component(run_.compute.profile, "transformer");
  const auto step_tap = [&](const char* suffix) {
    return run_.tap ? run_.tap.Under(fmt::format("transformer/step{:03}{}/", step, suffix)) : Tap();
  };
  std::vector<Tap> taps = {step_tap("")};
  if (guided_) taps.push_back(step_tap(".neg"));
  std::vector<Tensor> velocities = pass_->Predict(latents, timestep, taps);
  Tensor velocity = std::move(velocities.front());
  if (guided_)
    run_.model.denoiser().Guide(velocities.back(), static_cast<float>(run_.settings.cfg), velocity);
  return velocity;
}

Tensor DecodeLatents(const Run& run, Tensor latents) {
  run.tap("vae/pre_decode_latents", latents);
  const bool tiled = run.geometry().Tiles(run.request.vae_tiling, {run.settings.width, run.settings.height});
  const auto profiled = Profile::Scope::Component(run.compute.profile, "vae");
  Tensor image = run.model.autoencoder().Decode(latents, tiled, run.compute, run.tap.Under("vae/"));
  run.tap("image", image);
  return image;
}

Image ToImage(const Model& model, const Tensor& image) {
  const int64_t channels = image.dim(1), area = image.dim(2) * image.dim(3);
  const int64_t broken =
      std::count_if(image.data(), image.data() + image.size(), [](float v) { return !std::isfinite(v); });
  if (broken > 0) {
    const std::string cause = CauseOfNan(model);
    Fail(ErrorKind::kBadInput, "{} of the picture's {} values are NaN or infinite: {}; no picture was made",
         broken, image.size(), cause);
  }
  Image pixels{image.dim(3), image.dim(2), std::vector<uint8_t>(static_cast<size_t>(image.size())), channels};
  for (int64_t p = 0; p < area; ++p) {
    for (int64_t c = 0; c < channels; ++c) {
      const float unit = std::clamp(image[c * area + p] * 0.5f + 0.5f, 0.0f, 1.0f);
      pixels.pixels[static_cast<size_t>(channels * p + c)] =
          static_cast<uint8_t>(std::nearbyint(unit * 255.0f));
    }
  }
  return pixels;
}

}  // namespace qwen_image::draw
