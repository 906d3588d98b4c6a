// Text to picture, in numbered steps.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "core/cancel.h"
#include "core/fail.h"
#include "model/latents.h"
#include "pipeline/memory_check.h"
#include "pipeline/resume.h"
#include "pipeline/stages.h"
#include "pipeline/step_cache.h"

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

// Those who watch a run want to see all of it.
void CheckCanBeWatched(const GenerateRequest& request, const GenerateHooks& hooks) {
  if (!hooks.checkpoints) return;
  if (request.step_cache > 0)
    Fail(ErrorKind::kUsage, "with the step cache there are no checkpoints of the steps that are estimated");
  if (!request.resume_folder.empty())
    Fail(ErrorKind::kUsage, "a run that is resumed has no checkpoints of the steps before");
}

}  // namespace

Picture Pipeline::Generate(const GenerateRequest& request, const GenerateHooks& hooks) const {
  // 1. Check the request and fill in the defaults.
  const Pipeline::Impl& model = *impl_;
  const Settings settings = ResolveSettings(request, model.defaults, model.vae.config().z_dim);
  CheckCanBeWatched(request, hooks);
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
                  .seed = request.seed};

  // 2. Turn the prompts into embeddings.
  Stopwatch encode_watch;
  report(Progress::Stage::kEncodePrompt, 0);
  const EncodedText text = EncodeText(model, run, request.prompt, Which::kPositive);
  std::optional<EncodedText> negative;
  if (settings.guided()) negative = EncodeText(model, run, settings.negative_prompt, Which::kNegative);
  picture.prompt_tokens = text.prompt_tokens;
  picture.prompt_truncated = text.truncated;
  picture.prompt_from_cache = text.from_cache && (!negative || negative->from_cache);
  model.ReleaseEncoderPages();  // memory for the next stage; a later run finds them in the page cache
  picture.seconds.encode_prompt = encode_watch.Seconds();

  // 3. Draw the noise, 4. lay out the noise levels; or take up what an earlier run left.
  Stopwatch denoise_watch;
  Tensor latents = MakeInitialLatents(run, model.vae.config().z_dim);
  run.tap("initial_latents_packed", latents);
  const Schedule schedule = MakeTappedSchedule(model, run);
  StepCache step_cache(request.step_cache, schedule);
  KeptRun kept(model, run, schedule, hooks.on_note);
  picture.resume_file = kept.path();
  picture.steps_resumed = progress.resumed = kept.Load(latents, step_cache);

  // 5. Denoise step by step.
  for (int64_t step = picture.steps_resumed; step < settings.steps; ++step) {
    report(Progress::Stage::kDenoise, step);
    if (run.tap) run.tap(fmt::format("packed_latents_step{}", step), latents);
    Tensor velocity = step_cache.Velocity(step, [&] {
      const float timestep = schedule.timesteps[static_cast<size_t>(step)] / 1000.0f;
      return PredictNoise(model, run, latents, text.embeds, negative ? &negative->embeds : nullptr, timestep,
                          step);
    });
    if (run.tap) run.tap(fmt::format("noise_pred_step{}", step), velocity);
    EulerStep(schedule, step, velocity, latents);
    kept.Save(step + 1, latents, step_cache);
  }
  report(Progress::Stage::kDenoise, settings.steps);
  run.tap("final_latents_packed", latents);
  model.transformer.ReleasePages();
  picture.steps_estimated = step_cache.reused();
  picture.seconds.denoise = denoise_watch.Seconds();

  // 6. Decode the latents into pixels.
  Stopwatch decode_watch;
  report(Progress::Stage::kDecode, settings.steps);
  Tensor vae_latents = UnpackLatents(latents, model.vae.config().z_dim, settings.grid);
  DenormalizeLatents(model.vae.config(), vae_latents);
  picture.rgb = ToRgb(model, DecodePicture(model, run, std::move(vae_latents)));
  model.vae.store().ReleasePages();
  picture.seconds.decode = decode_watch.Seconds();
  return picture;
}

}  // namespace qwen_image
