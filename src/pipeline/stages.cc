#include "pipeline/stages.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/fail.h"
#include "model/guidance.h"
#include "model/latents.h"
#include "model/prompt.h"
#include "pipeline/identity.h"
#include "pipeline/memory_check.h"
#include "weights/nonfinite.h"

namespace qwen_image {
namespace {

// Hidden states of the prompt's own tokens: without the template's first ones, at most max_sequence_length.
Tensor CutPromptEmbeds(const Tensor& hidden_states, int64_t dropped, int64_t max_length) {
  const int64_t tokens = std::min(hidden_states.dim(1) - dropped, max_length), width = hidden_states.dim(2);
  Tensor embeds({1, tokens, width});
  std::copy_n(hidden_states.row(dropped), tokens * width, embeds.data());
  return embeds;
}

std::string CauseOfNan(const Pipeline::Impl& model) {
  constexpr std::chrono::seconds kPatience(10);
  const std::string found =
      FindNonFinite({&model.vae.store(), &model.transformer.store(), &model.text_encoder.store()}, kPatience);
  return found.empty() ? "the weights are damaged, or the guidance scale does not suit them" : found;
}

}  // namespace

EncodedText EncodeText(const Pipeline::Impl& model, const Run& run, const std::string& prompt, Which which) {
  const bool negative = which == Which::kNegative;
  const auto special = run.request.reference_special_tokens ? Tokenizer::SpecialTokens::kParse
                                                            : Tokenizer::SpecialTokens::kLiteral;
  const EncodedPrompt encoded = EncodePrompt(model.tokenizer, prompt, special);
  run.tap(negative ? "negative_input_ids" : "input_ids", encoded.ids.data(),
          {1, static_cast<int64_t>(encoded.ids.size())});

  const int64_t own = static_cast<int64_t>(encoded.ids.size()) - encoded.dropped;
  EncodedText text{.embeds = {},
                   .prompt_tokens = encoded.prompt_tokens,
                   .truncated = encoded.truncated || own > run.request.max_sequence_length};
  // Whoever watches the run wants to see the text encoder at work.
  if (run.tap) {
    text.embeds = EncodeIds(model, run, encoded.ids, which);
    return text;
  }
  const PromptKey key{.text_encoder = model.prompts.on_disk() ? TextEncoderIdentity(model) : "",
                      .ids = encoded.ids,
                      .dropped = encoded.dropped,
                      .tokens = std::min(own, run.request.max_sequence_length),
                      .width = model.text_encoder.config().hidden_size};
  std::optional<Tensor> known = model.prompts.Find(key);
  text.from_cache = known.has_value();
  text.embeds = known ? *std::move(known) : EncodeIds(model, run, encoded.ids, which);
  if (!text.from_cache) model.prompts.Keep(key, text.embeds);
  return text;
}

Tensor EncodeIds(const Pipeline::Impl& model, const Run& run, const std::vector<int64_t>& ids, Which which) {
  const bool negative = which == Which::kNegative;
  const Tensor hidden_states = model.text_encoder.Encode(
      ids, run.PassFor(which), run.tap.Under(negative ? "text_encoder.neg/" : "text_encoder/"));
  model.text_encoder.store().ThrowIfDamaged();
  Tensor embeds =
      CutPromptEmbeds(hidden_states, kTextToImageTemplate.dropped_tokens, run.request.max_sequence_length);
  run.tap(negative ? "negative_prompt_embeds" : "prompt_embeds", embeds);
  const std::vector<int64_t> mask(static_cast<size_t>(embeds.dim(1)), 1);  // one prompt at a time: no padding
  run.tap(negative ? "negative_prompt_embeds_mask" : "prompt_embeds_mask", mask.data(), {1, embeds.dim(1)});
  return embeds;
}

Tensor MakeInitialLatents(const Run& run, int64_t channels) {
  if (!run.request.latents) return SeededLatents(run.request.seed, channels, run.settings.grid);
  Tensor given(run.request.latents->shape);
  std::copy_n(run.request.latents->values.data(), given.size(), given.data());
  return given.shape().size() == 3 ? std::move(given) : PackLatents(given, channels, run.settings.grid);
}

Schedule MakeTappedSchedule(const Pipeline::Impl& model, const Run& run) {
  Schedule schedule =
      MakeSchedule(model.scheduler, run.settings.steps, run.settings.grid.height * run.settings.grid.width);
  run.tap("sigmas", schedule.sigmas.data(), {run.settings.steps + 1});
  run.tap("timesteps", schedule.timesteps.data(), {run.settings.steps});
  return schedule;
}

Tensor PredictNoise(const Pipeline::Impl& model, const Run& run, const Tensor& latents,
                    const Tensor& prompt_embeds, const Tensor* negative_embeds, float timestep,
                    int64_t step) {
  const auto step_tap = [&](const char* suffix) {
    return run.tap ? run.tap.Under(fmt::format("transformer/step{:03}{}/", step, suffix)) : Tap();
  };
  std::vector<Transformer::Prompt> prompts = {{prompt_embeds, step_tap("")}};
  if (negative_embeds) prompts.push_back({*negative_embeds, step_tap(".neg")});
  std::vector<Tensor> velocities =
      model.transformer.PredictVelocities(latents, prompts, timestep, {&run.settings.grid, 1}, run.compute);
  Tensor velocity = std::move(velocities.front());
  if (negative_embeds) ApplyTrueCfg(velocities.back(), static_cast<float>(run.settings.cfg), velocity);
  model.transformer.ThrowIfDamaged();
  return velocity;
}

Tensor DecodePicture(const Pipeline::Impl& model, const Run& run, Tensor latents) {
  run.tap("vae/pre_decode_latents", latents);
  Tensor image = UseTiling(run.request, run.settings)
                     ? model.vae.DecodeTiled(latents, kLargePictureTiling, run.compute)
                     : model.vae.Decode(latents, run.compute, run.tap.Under("vae/"));
  run.tap("image", image);
  return image;
}

std::vector<uint8_t> ToRgb(const Pipeline::Impl& model, const Tensor& image) {
  const int64_t area = image.dim(2) * image.dim(3);
  const int64_t broken =
      std::count_if(image.data(), image.data() + image.size(), [](float v) { return !std::isfinite(v); });
  if (broken > 0) {
    const std::string cause = CauseOfNan(model);
    Fail(ErrorKind::kBadInput, "{} of the picture's {} values are NaN or infinite: {}; no picture was made",
         broken, image.size(), cause);
  }
  std::vector<uint8_t> rgb(static_cast<size_t>(image.size()));
  for (int64_t p = 0; p < area; ++p) {
    for (int64_t c = 0; c < 3; ++c) {
      const float unit = std::clamp(image[c * area + p] * 0.5f + 0.5f, 0.0f, 1.0f);
      rgb[static_cast<size_t>(3 * p + c)] = static_cast<uint8_t>(std::nearbyint(unit * 255.0f));
    }
  }
  return rgb;
}

}  // namespace qwen_image
