#include "draw/drawing.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "core/fail.h"
#include "draw/memory_check.h"
#include "draw/preview.h"
#include "draw/record.h"
#include "image/alignment.h"
#include "image/blend.h"
#include "kernels/resize.h"
#include "model/token_latents.h"

namespace qwen_image::draw {
namespace {

// Adds the seconds of a scope to a sum.
class Timed {
 public:
  explicit Timed(double& seconds) : seconds_(seconds) {}
  ~Timed() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  double& seconds_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A listener wants to see all of a run.
void CheckCanBeWatched(const GenerateRequest& request, const GenerateHooks& hooks) {
  if (!hooks.checkpoints) return;
  if (request.step_cache > 0)
    Fail(ErrorKind::kUsage, "with the step cache there are no checkpoints of the steps that are estimated");
  if (!request.resume_folder.empty())
    Fail(ErrorKind::kUsage, "a run that is resumed has no checkpoints of the steps before");
}

double StretchPercent(const Image& from, const Image& to) {
  return 100 *
         (static_cast<double>(to.width * from.height) / static_cast<double>(to.height * from.width) - 1);
}

}  // namespace

// 1. Check the request and fill in the defaults.
Drawing::Asked::Asked(const OpenedModel& opened, const GenerateRequest& asked, const GenerateHooks& hooks)
    : settings(opened.Resolve(asked)),
      suited(WithPicturesOf(opened.geometry().pixel_channels, asked)),
      request(suited ? *suited : asked) {
  CheckCanBeWatched(asked, hooks);
}

Drawing::Drawing(const OpenedModel& opened, Workbench& bench, const GenerateRequest& asked,
                 const GenerateHooks& hooks)
    : opened_(opened),
      bench_(bench),
      asked_(opened, asked, hooks),
      report_(hooks, asked_.settings.steps_run()),
      turn_(bench.turns, hooks.cancel, hooks.on_wait),
      compute_{bench.pool, report_.cancel(), [this](double fraction) { report_.Fraction(fraction); },
               hooks.profile},
      run_{*opened.model, asked_.request, asked_.settings, compute_,
           hooks.checkpoints ? Tap(hooks.checkpoints) : Tap()},
      picture_{.pixels = {},
               .prompt = run_.request.prompt,
               .negative_prompt = run_.settings.negative_prompt,
               .steps = run_.settings.steps,
               .cfg = run_.settings.cfg,
               .seed = run_.request.seed,
               .strength = run_.settings.strength},
      generator_(run_.request.seed) {
  const ModelTraits& traits = run_.model.traits();
  if (opened.check_memory) CheckWorkspaceFits(run_.model, run_.request, run_.settings);
  for (const std::string& text : SizeNotes(run_.request, run_.settings, traits)) report_.Note(text);
  if (const std::string text = BackgroundNote(run_.request, traits); !text.empty()) report_.Note(text);
}

Drawing::~Drawing() { run_.model.ReleasePages(); }

// The pictures that the models of an edit see. With margins that is the enlarged one.
std::span<const Image> Drawing::InputImages() const {
  if (source_ && !run_.request.input_images.empty()) return {&source_->image, 1};
  return run_.request.input_images;
}

void Drawing::EncodePrompts() {
  const Timed timed(picture_.seconds.encode_prompt);
  report_.Begin(Progress::Stage::kEncodePrompt, 0);
  source_ = SourceOf(run_.request, bench_.pool);
  VisionImages seen = LookAtImages(run_, InputImages());
  PromptMemory memory{bench_.prompts, bench_.identities};
  prompts_.positive = EncodeText(run_, memory, run_.request.prompt, PromptRole::kPositive, seen);
  if (run_.settings.guided())
    prompts_.negative = EncodeText(run_, memory, run_.settings.negative_prompt, PromptRole::kNegative, seen);
  picture_.prompt_tokens = prompts_.positive.prompt_tokens;
  picture_.prompt_truncated = prompts_.positive.truncated;
  picture_.prompt_from_cache =
      prompts_.positive.from_cache && (!prompts_.negative || prompts_.negative->from_cache);
  // This memory is the next stage's. A later run finds the weights in the page cache.
  run_.model.ReleasePages(Component::kTextEncoder);
}

void Drawing::EncodePictures() {
  const Timed timed(picture_.seconds.encode_pictures);
  const std::span<const Image> images = InputImages();
  if (source_ || !images.empty()) report_.Begin(Progress::Stage::kEncodePictures, 0);
  pictures_ = draw::EncodePictures(run_, images, source_, generator_);
  run_.model.ReleasePages(Component::kVae);
}

void Drawing::Begin() {
  const Timed timed(picture_.seconds.denoise);
  schedule_ = MakeTappedSchedule(run_);
  noise_ = DrawNoise(run_, generator_);
  latents_ = source_ ? MixWithNoise(pictures_.source, noise_, schedule_.sigmas.front()) : noise_.Clone();
  run_.tap("initial_latents_packed", latents_);
  step_cache_.emplace(run_.request.step_cache, schedule_);
  resumable_.emplace(run_, bench_.identities, schedule_, report_.note_function());
  picture_.resume_file = resumable_->path();
  picture_.steps_resumed = resumable_->Load(latents_, *step_cache_);
  report_.set_resumed(picture_.steps_resumed);
  picture_.steps_run = run_.settings.steps_run() - picture_.steps_resumed;
}

void Drawing::Denoise() {
  const Timed timed(picture_.seconds.denoise);
  const EncodedText* negative = prompts_.negative ? &*prompts_.negative : nullptr;
  const auto note = report_.note_function();
  {
    Denoising denoising(run_, prompts_.positive, negative, pictures_.references, note);
    for (int64_t step = picture_.steps_resumed; step < run_.settings.steps_run(); ++step) {
      report_.Begin(Progress::Stage::kDenoise, step);
      DenoiseStep(denoising, step);
    }
    report_.Begin(Progress::Stage::kDenoise, run_.settings.steps_run());
    run_.tap("final_latents_packed", latents_);
  }  // the next stage uses the memory of `denoising`
  run_.model.ReleasePages(Component::kTransformer);
  picture_.steps_estimated = step_cache_->reused();
}

void Drawing::DenoiseStep(Denoising& denoising, int64_t step) {
  const float next_sigma = schedule_.sigmas[static_cast<size_t>(step + 1)];
  if (run_.tap) run_.tap(fmt::format("packed_latents_step{}", step), latents_);
  Tensor velocity = step_cache_->Velocity(step, [&] {
    const float timestep = schedule_.timesteps[static_cast<size_t>(step)] / 1000.0f;
    return denoising.Velocity(latents_, timestep, step);
  });
  if (run_.tap) run_.tap(fmt::format("noise_pred_step{}", step), velocity);
  EulerStep(schedule_, step, velocity, latents_);
  if (pictures_.mask.size() > 0)
    RestoreUnmasked(pictures_.mask, MixWithNoise(pictures_.source, noise_, next_sigma), latents_);
  resumable_->Save(step + 1, latents_, *step_cache_);
  if (report_.wants_previews() && step + 1 < run_.settings.steps_run())
    report_.Preview(Preview(run_, latents_, velocity, next_sigma));
}

void Drawing::Decode() {
  const Timed timed(picture_.seconds.decode);
  report_.Begin(Progress::Stage::kDecode, run_.settings.steps_run());
  Tensor unpacked = run_.model.autoencoder().Unpack(latents_, run_.settings.grid);
  drawn_ = ToImage(run_.model, DecodeLatents(run_, std::move(unpacked)));
  run_.model.ReleasePages(Component::kVae);
}

SourceReport Drawing::ReportSource(const Image& original, const Image& sized_original,
                                   const Image& result) const {
  const Margins& margins = run_.request.outpaint;
  const bool own_size =
      !source_ && (run_.request.width || run_.request.height);  // an edit at a size of its own
  return {.input_width = original.width - margins.left - margins.right,
          .input_height = original.height - margins.top - margins.bottom,
          .enlarged_width = original.width,
          .enlarged_height = original.height,
          .working_width = run_.settings.width,
          .working_height = run_.settings.height,
          .stretch_percent = own_size ? 0 : StretchPercent(original, result),
          .alignment = image::MeasureAlignment(sized_original, result, bench_.pool)};
}

Picture Drawing::Finish() {
  {
    const Timed timed(picture_.seconds.decode);
    picture_.width = run_.settings.output_width;
    picture_.height = run_.settings.output_height;
    const auto sized = [&](const auto& image) {
      if (image.width == picture_.width && image.height == picture_.height) return image;
      return Resize(image, picture_.width, picture_.height, ResizeFilter::kLanczos, bench_.pool);
    };
    Image result = sized(drawn_);
    const std::span<const Image> images = InputImages();
    const Image* original = source_ ? &source_->image : images.empty() ? nullptr : &images.back();
    if (original) {
      const Image sized_original = sized(*original);
      picture_.source = ReportSource(*original, sized_original, result);
      if (source_ && source_->mask && run_.request.blend)
        result = image::Blend(sized_original, result, sized(*source_->mask));
    }
    if (run_.settings.background) result = Flatten(std::move(result), *run_.settings.background);
    picture_.notes = report_.notes();
    picture_.channels = result.channels;
    picture_.pixels = std::move(result.pixels);
    picture_.png_text = FileText(LibraryRecord(picture_, run_.request, opened_));
  }
  report_.Fraction(1);
  return std::move(picture_);
}

}  // namespace qwen_image::draw
