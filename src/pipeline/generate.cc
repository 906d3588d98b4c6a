// Text to picture, in numbered steps.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "core/cancel.h"
#include "core/checkpoint.h"
#include "core/fail.h"
#include "model/guidance.h"
#include "model/latents.h"
#include "model/prompt.h"
#include "pipeline/memory_check.h"
#include "pipeline/pipeline_impl.h"

namespace qwen_image {
namespace {

class Stopwatch {
 public:
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

enum class Which { kPositive, kNegative };  // prompt

// What the steps of one run share.
struct Run {
  const GenerateRequest& request;
  const Settings& settings;
  const Compute& compute;
  Tap tap;

  // With guidance every prompt and every step takes two passes, one for each prompt.
  Compute PassFor(Which which) const {
    return compute.ForPass(which == Which::kNegative, settings.guided() ? 2 : 1);
  }
};

// Hidden states of the prompt's own tokens: without the template's first ones, at most max_sequence_length.
Tensor CutPromptEmbeds(const Tensor& hidden_states, int64_t dropped, int64_t max_length) {
  const int64_t tokens = std::min(hidden_states.dim(1) - dropped, max_length), width = hidden_states.dim(2);
  Tensor embeds({1, tokens, width});
  std::copy_n(hidden_states.row(dropped), tokens * width, embeds.data());
  return embeds;
}

struct EncodedText {
  Tensor embeds;  // [1, tokens, width]
  int64_t prompt_tokens = 0;
  bool truncated = false;
};

EncodedText EncodeText(const Pipeline::Impl& model, const Run& run, const std::string& prompt, Which which) {
  const bool negative = which == Which::kNegative;
  const auto special = run.request.reference_special_tokens ? Tokenizer::SpecialTokens::kParse
                                                            : Tokenizer::SpecialTokens::kLiteral;
  const EncodedPrompt encoded = EncodePrompt(model.tokenizer, prompt, special);
  run.tap(negative ? "negative_input_ids" : "input_ids", encoded.ids.data(),
          {1, static_cast<int64_t>(encoded.ids.size())});

  const Tensor hidden_states = model.text_encoder.Encode(
      encoded.ids, run.PassFor(which), run.tap.Under(negative ? "text_encoder.neg/" : "text_encoder/"));
  EncodedText text{
      CutPromptEmbeds(hidden_states, encoded.dropped, run.request.max_sequence_length), encoded.prompt_tokens,
      encoded.truncated || hidden_states.dim(1) - encoded.dropped > run.request.max_sequence_length};
  run.tap(negative ? "negative_prompt_embeds" : "prompt_embeds", text.embeds);
  const std::vector<int64_t> mask(static_cast<size_t>(text.embeds.dim(1)),
                                  1);  // one prompt at a time: no padding
  run.tap(negative ? "negative_prompt_embeds_mask" : "prompt_embeds_mask", mask.data(),
          {1, text.embeds.dim(1)});
  return text;
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
                    const Tensor& prompt_embeds, const std::optional<Tensor>& negative_embeds, float timestep,
                    int64_t step) {
  const auto step_tap = [&](const char* suffix) {
    return run.tap ? run.tap.Under(fmt::format("transformer/step{:03}{}/", step, suffix)) : Tap();
  };
  Tensor velocity = model.transformer.PredictVelocity(latents, prompt_embeds, timestep, run.settings.grid,
                                                      run.PassFor(Which::kPositive), step_tap(""));
  if (negative_embeds) {
    const Tensor negative =
        model.transformer.PredictVelocity(latents, *negative_embeds, timestep, run.settings.grid,
                                          run.PassFor(Which::kNegative), step_tap(".neg"));
    ApplyTrueCfg(negative, static_cast<float>(run.settings.cfg), velocity);
  }
  return velocity;
}

Tensor DecodeLatents(const Pipeline::Impl& model, const Run& run, const Tensor& packed) {
  Tensor latents = UnpackLatents(packed, model.vae.config().z_dim, run.settings.grid);
  DenormalizeLatents(model.vae.config(), latents);
  run.tap("vae/pre_decode_latents", latents);
  Tensor image = UseTiling(run.request, run.settings)
                     ? model.vae.DecodeTiled(latents, kLargePictureTiling, run.compute)
                     : model.vae.Decode(latents, run.compute, run.tap.Under("vae/"));
  run.tap("image", image);
  return image;
}

// [1, 3, h, w] in [−1, 1] → [h, w, 3] in 0…255, rounding halves to even as NumPy does.
std::vector<uint8_t> ToRgb(const Tensor& image) {
  const int64_t area = image.dim(2) * image.dim(3);
  const int64_t broken =
      std::count_if(image.data(), image.data() + image.size(), [](float v) { return !std::isfinite(v); });
  if (broken > 0) {
    Fail(ErrorKind::kBadInput,
         "{} of the picture's {} values are NaN or infinite: the weights are damaged, or the "
         "guidance scale does not suit them; no picture was made",
         broken, image.size());
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

}  // namespace

Picture Pipeline::Generate(const GenerateRequest& request, const GenerateHooks& hooks) const {
  // 1. Check the request and fill in the defaults.
  const Pipeline::Impl& model = *impl_;
  const Settings settings = ResolveSettings(request, model.defaults, model.vae.config().z_dim);
  if (model.check_memory) CheckWorkspaceFits(model, request, settings);
  const CancelFlag never;
  Progress progress{
      .stage = Progress::Stage::kEncodePrompt, .step = 0, .steps = settings.steps, .fraction = 0};
  const auto report_fraction = [&](double fraction) {
    progress.fraction = fraction;
    if (hooks.on_progress) hooks.on_progress(progress);
  };
  const Compute compute{model.pool, hooks.cancel ? *hooks.cancel : never, report_fraction};
  const Run run{request, settings, compute, hooks.checkpoints ? Tap(hooks.checkpoints) : Tap()};
  const auto report = [&](Progress::Stage stage, int64_t step) {
    compute.cancel.ThrowIfCancelled();
    progress.stage = stage;
    progress.step = step;
    report_fraction(0);
  };
  Picture picture{.width = settings.width,
                  .height = settings.height,
                  .rgb = {},
                  .prompt = request.prompt,
                  .negative_prompt = settings.negative_prompt,
                  .steps = settings.steps,
                  .cfg = settings.cfg,
                  .seed = request.seed,
                  .prompt_tokens = 0,
                  .prompt_truncated = false,
                  .seconds = {}};

  // 2. Turn the prompts into embeddings.
  Stopwatch encode_watch;
  report(Progress::Stage::kEncodePrompt, 0);
  const EncodedText text = EncodeText(model, run, request.prompt, Which::kPositive);
  std::optional<Tensor> negative_embeds;
  if (settings.guided())
    negative_embeds = EncodeText(model, run, settings.negative_prompt, Which::kNegative).embeds;
  picture.prompt_tokens = text.prompt_tokens;
  picture.prompt_truncated = text.truncated;
  model.text_encoder.store()
      .ReleasePages();  // memory for the next stage; a later run finds them in the page cache
  picture.seconds.encode_prompt = encode_watch.Seconds();

  // 3. Draw the noise, 4. lay out the noise levels.
  Stopwatch denoise_watch;
  Tensor latents = MakeInitialLatents(run, model.vae.config().z_dim);
  run.tap("initial_latents_packed", latents);
  const Schedule schedule = MakeTappedSchedule(model, run);

  // 5. Denoise step by step.
  for (int64_t step = 0; step < settings.steps; ++step) {
    report(Progress::Stage::kDenoise, step);
    if (run.tap) run.tap(fmt::format("packed_latents_step{}", step), latents);
    const float timestep = schedule.timesteps[static_cast<size_t>(step)] / 1000.0f;
    Tensor velocity = PredictNoise(model, run, latents, text.embeds, negative_embeds, timestep, step);
    if (run.tap) run.tap(fmt::format("noise_pred_step{}", step), velocity);
    EulerStep(schedule, step, velocity, latents);
  }
  report(Progress::Stage::kDenoise, settings.steps);
  run.tap("final_latents_packed", latents);
  model.transformer.store().ReleasePages();
  picture.seconds.denoise = denoise_watch.Seconds();

  // 6. Decode the latents into pixels.
  Stopwatch decode_watch;
  report(Progress::Stage::kDecode, settings.steps);
  picture.rgb = ToRgb(DecodeLatents(model, run, latents));
  picture.seconds.decode = decode_watch.Seconds();
  return picture;
}

}  // namespace qwen_image
