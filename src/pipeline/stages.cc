#include "pipeline/stages.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "core/fail.h"
#include "families/qwen_image/guidance.h"
#include "families/qwen_image/latents.h"
#include "pipeline/identity.h"
#include "pipeline/memory_check.h"
#include "weights/nonfinite.h"

namespace qwen_image {
namespace {

// Hidden states of the prompt's own tokens: without the template's first ones, at most `max_length`.
Tensor CutPromptEmbeds(const Tensor& hidden_states, int64_t dropped, int64_t max_length) {
  const int64_t tokens = std::min(hidden_states.dim(1) - dropped, max_length), width = hidden_states.dim(2);
  Tensor embeds({1, tokens, width});
  std::copy_n(hidden_states.row(dropped), tokens * width, embeds.data());
  return embeds;
}

// The edit pipelines use the whole text, whatever its length.
int64_t MaxEmbeds(const Run& run, const SeenPictures& pictures) {
  return pictures.any() ? std::numeric_limits<int64_t>::max() : run.request.max_sequence_length;
}

EncodedPrompt EncodeFor(const Pipeline::Impl& model, const Run& run, const std::string& prompt,
                        const SeenPictures& pictures) {
  const auto special = run.request.reference_special_tokens ? Tokenizer::SpecialTokens::kParse
                                                            : Tokenizer::SpecialTokens::kLiteral;
  if (!pictures.any()) return EncodePrompt(model.tokenizer, prompt, special);
  std::vector<int64_t> tokens;
  const int64_t merge = model.vision_processor.merge_size;
  for (const ImageGrid& grid : pictures.grids()) tokens.push_back(grid.tokens(merge));
  return EncodeEditPrompt(model.tokenizer, prompt, run.settings.edit_template, tokens, special);
}

std::string EncodersIdentity(const Pipeline::Impl& model, const SeenPictures& pictures) {
  const std::string text_encoder = TextEncoderIdentity(model);
  return pictures.any() ? text_encoder + " " + VisionEncoderIdentity(model) : text_encoder;
}

std::string CauseOfNan(const Pipeline::Impl& model) {
  constexpr std::chrono::seconds kPatience(10);
  const std::lock_guard lock(model.vision_encoder_mutex);
  const WeightStore* vision = model.opened_vision_encoder ? &model.opened_vision_encoder->store() : nullptr;
  const std::string found = FindNonFinite(
      {&model.vae.store(), &model.transformer.store(), &model.text_encoder.store(), vision}, kPatience);
  return found.empty() ? "the weights are damaged, or the guidance scale does not suit them" : found;
}

}  // namespace

EncodedText EncodeText(const Pipeline::Impl& model, const Run& run, const std::string& prompt, Which which,
                       SeenPictures& pictures) {
  const bool negative = which == Which::kNegative;
  const EncodedPrompt encoded = EncodeFor(model, run, prompt, pictures);
  run.tap(negative ? "negative_input_ids" : "input_ids", encoded.ids.data(),
          {1, static_cast<int64_t>(encoded.ids.size())});

  const int64_t own = static_cast<int64_t>(encoded.ids.size()) - encoded.dropped,
                most = MaxEmbeds(run, pictures);
  EncodedText text{
      .embeds = {}, .prompt_tokens = encoded.prompt_tokens, .truncated = encoded.truncated || own > most};
  // Whoever watches the run wants to see the text encoder at work.
  if (run.tap) {
    text.embeds = EncodeIds(model, run, encoded, which, pictures);
    return text;
  }
  const PromptKey key{.text_encoder = model.prompts.on_disk() ? EncodersIdentity(model, pictures) : "",
                      .ids = encoded.ids,
                      .pictures = pictures.Digest(),
                      .dropped = encoded.dropped,
                      .tokens = std::min(own, most),
                      .width = model.text_encoder.config().hidden_size};
  std::optional<Tensor> known = model.prompts.Find(key);
  text.from_cache = known.has_value();
  text.embeds = known ? *std::move(known) : EncodeIds(model, run, encoded, which, pictures);
  if (!text.from_cache) model.prompts.Keep(key, text.embeds);
  return text;
}

Tensor EncodeIds(const Pipeline::Impl& model, const Run& run, const EncodedPrompt& prompt, Which which,
                 SeenPictures& pictures) {
  const bool negative = which == Which::kNegative;
  const Tap encoder_tap = run.tap.Under(negative ? "text_encoder.neg/" : "text_encoder/");
  Tensor hidden_states;
  if (pictures.any()) {
    const PromptImages images{pictures.Embeds(model, run), pictures.grids(), prompt.image_token,
                              model.vision_encoder().config().spatial_merge_size};
    if (run.tap) {
      const std::vector<int64_t> position_ids = GetRopeIndex(prompt.ids, &images);
      run.tap(negative ? "negative_position_ids" : "position_ids", position_ids.data(),
              {3, 1, static_cast<int64_t>(prompt.ids.size())});
    }
    hidden_states = model.text_encoder.Encode(prompt.ids, images, run.PassFor(which), encoder_tap);
  } else {
    hidden_states = model.text_encoder.Encode(prompt.ids, run.PassFor(which), encoder_tap);
  }
  model.text_encoder.store().ThrowIfDamaged();
  Tensor embeds = CutPromptEmbeds(hidden_states, prompt.dropped, MaxEmbeds(run, pictures));
  run.tap(negative ? "negative_prompt_embeds" : "prompt_embeds", embeds);
  const std::vector<int64_t> mask(static_cast<size_t>(embeds.dim(1)), 1);  // one prompt at a time: no padding
  run.tap(negative ? "negative_prompt_embeds_mask" : "prompt_embeds_mask", mask.data(), {1, embeds.dim(1)});
  return embeds;
}

Tensor DrawNoise(const Run& run, int64_t channels, TorchGenerator& generator) {
  Tensor noise;
  if (run.request.latents) {
    Tensor given(run.request.latents->shape);
    std::copy_n(run.request.latents->values.data(), given.size(), given.data());
    noise = given.shape().size() == 3 ? std::move(given) : PackLatents(given, channels, run.settings.grid);
  } else {
    noise = DrawLatents(generator, channels, run.settings.grid);
  }
  if (run.settings.strength) run.tap("noise_packed", noise);
  return noise;
}

Schedule MakeTappedSchedule(const Pipeline::Impl& model, const Run& run) {
  Schedule schedule = ScheduleOf(model.scheduler, run.settings);
  run.tap("sigmas", schedule.sigmas.data(), {run.settings.steps_run() + 1});
  run.tap("timesteps", schedule.timesteps.data(), {run.settings.steps_run()});
  return schedule;
}

Tensor PredictNoise(const Run& run, TransformerPass& transformer, const Tensor& latents,
                    const Conditions& conditions, float timestep, int64_t step) {
  const auto step_tap = [&](const char* suffix) {
    return run.tap ? run.tap.Under(fmt::format("transformer/step{:03}{}/", step, suffix)) : Tap();
  };
  std::vector<Transformer::Prompt> prompts = {{conditions.prompt_embeds, step_tap("")}};
  if (conditions.negative_embeds) prompts.push_back({*conditions.negative_embeds, step_tap(".neg")});
  std::vector<TokenGrid> pictures = {run.settings.grid};
  for (const EditInputSizes& sizes : run.settings.references) pictures.push_back(GridOf(sizes.vae));
  Tensor joined;
  if (conditions.references.size() > 0) joined = JoinPacked(latents, conditions.references);
  std::vector<Tensor> velocities =
      transformer.PredictVelocities(joined.size() > 0 ? joined : latents, prompts, timestep, pictures);
  Tensor velocity = std::move(velocities.front());
  if (prompts.size() > 1) ApplyTrueCfg(velocities.back(), static_cast<float>(run.settings.cfg), velocity);
  return velocity;
}

Tensor DecodePicture(const Pipeline::Impl& model, const Run& run, Tensor latents) {
  run.tap("vae/pre_decode_latents", latents);
  Tensor image = UseTiling(run.request, run.settings.width, run.settings.height)
                     ? model.vae.DecodeTiled(latents, kLargePictureTiling, run.compute)
                     : model.vae.Decode(latents, run.compute, run.tap.Under("vae/"));
  run.tap("image", image);
  return image;
}

RgbImage ToRgb(const Pipeline::Impl& model, const Tensor& image) {
  const int64_t area = image.dim(2) * image.dim(3);
  const int64_t broken =
      std::count_if(image.data(), image.data() + image.size(), [](float v) { return !std::isfinite(v); });
  if (broken > 0) {
    const std::string cause = CauseOfNan(model);
    Fail(ErrorKind::kBadInput, "{} of the picture's {} values are NaN or infinite: {}; no picture was made",
         broken, image.size(), cause);
  }
  RgbImage rgb{image.dim(3), image.dim(2), std::vector<uint8_t>(static_cast<size_t>(image.size()))};
  for (int64_t p = 0; p < area; ++p) {
    for (int64_t c = 0; c < 3; ++c) {
      const float unit = std::clamp(image[c * area + p] * 0.5f + 0.5f, 0.0f, 1.0f);
      rgb.pixels[static_cast<size_t>(3 * p + c)] = static_cast<uint8_t>(std::nearbyint(unit * 255.0f));
    }
  }
  return rgb;
}

}  // namespace qwen_image
