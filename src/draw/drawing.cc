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
#include "qwen_image/cancel.h"

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

Settings CheckedSettings(const OpenedModel& opened, const GenerateRequest& asked,
                         const GenerateHooks& hooks) {
  Settings settings = opened.Resolve(asked);
  CheckCanBeWatched(asked, hooks);
  return settings;
}

double StretchPercent(const Image& from, const Image& to) {
  return 100 *
         (static_cast<double>(to.width * from.height) / static_cast<double>(to.height * from.width) - 1);
}

}  // namespace

// 1. Check the request and fill in the defaults.
Drawing::Drawing(const OpenedModel& opened, Workbench& bench, const GenerateRequest& asked,
                 const GenerateHooks& hooks)
    : opened_(opened),
      model_(*opened.model),
      hooks_(hooks),
      settings_(CheckedSettings(opened, asked, hooks)),
      suited_(WithPicturesOf(opened.geometry().pixel_channels, asked)),
      request_(suited_ ? *suited_ : asked),
      bench_(bench),
      turn_(bench.turns, hooks.cancel, hooks.on_wait),
      compute_{bench.pool, hooks.cancel ? *hooks.cancel : never_,
               [this](double fraction) { ReportFraction(fraction); }},
      run_{model_, request_, settings_, compute_, hooks.checkpoints ? Tap(hooks.checkpoints) : Tap()},
      note_([this](const std::string& text) { Note(text); }),
      progress_{
          .stage = Progress::Stage::kEncodePrompt, .step = 0, .steps = settings_.steps_run(), .fraction = 0},
      picture_{.pixels = {},
               .prompt = request_.prompt,
               .negative_prompt = settings_.negative_prompt,
               .steps = settings_.steps,
               .cfg = settings_.cfg,
               .seed = request_.seed,
               .strength = settings_.strength},
      generator_(request_.seed) {
  if (opened.check_memory) CheckWorkspaceFits(model_, request_, settings_);
  for (const std::string& text : SizeNotes(request_, settings_, model_.traits())) Note(text);
  if (const std::string text = BackgroundNote(request_, model_.traits()); !text.empty()) Note(text);
}

Drawing::~Drawing() { model_.ReleasePages(); }

void Drawing::Note(const std::string& text) {
  picture_.notes.push_back(text);
  if (hooks_.on_note) hooks_.on_note(text);
}

void Drawing::ReportFraction(double fraction) {
  progress_.fraction = fraction;
  if (hooks_.on_progress) hooks_.on_progress(progress_);
}

void Drawing::Report(Progress::Stage stage, int64_t step) {
  compute_.cancel.ThrowIfCancelled();
  progress_.stage = stage;
  progress_.step = step;
  ReportFraction(0);
}

// The pictures that the models of an edit see. With margins that is the enlarged one.
std::span<const Image> Drawing::InputImages() const {
  if (source_ && !request_.input_images.empty()) return {&source_->image, 1};
  return request_.input_images;
}

void Drawing::EncodePrompts() {
  const Timed timed(picture_.seconds.encode_prompt);
  Report(Progress::Stage::kEncodePrompt, 0);
  source_ = SourceOf(request_, bench_.pool);
  SeenPictures seen = LookAtPictures(run_, InputImages());
  PromptMemory memory{bench_.prompts, bench_.identities};
  text_ = EncodeText(run_, memory, request_.prompt, PromptRole::kPositive, seen);
  if (settings_.guided())
    negative_ = EncodeText(run_, memory, settings_.negative_prompt, PromptRole::kNegative, seen);
  picture_.prompt_tokens = text_.prompt_tokens;
  picture_.prompt_truncated = text_.truncated;
  picture_.prompt_from_cache = text_.from_cache && (!negative_ || negative_->from_cache);
  // This memory is the next stage's. A later run finds the weights in the page cache.
  model_.ReleasePages(Component::kTextEncoder);
}

void Drawing::EncodePictures() {
  const Timed timed(picture_.seconds.encode_pictures);
  const std::span<const Image> images = InputImages();
  if (source_ || !images.empty()) Report(Progress::Stage::kEncodePictures, 0);
  pictures_ = draw::EncodePictures(run_, images, source_, generator_);
  model_.ReleasePages(Component::kVae);
}

void Drawing::Begin() {
  const Timed timed(picture_.seconds.denoise);
  schedule_ = MakeTappedSchedule(run_);
  noise_ = DrawNoise(run_, generator_);
  latents_ = source_ ? MixWithNoise(pictures_.source, noise_, schedule_.sigmas.front()) : noise_.Clone();
  run_.tap("initial_latents_packed", latents_);
  step_cache_.emplace(request_.step_cache, schedule_);
  kept_.emplace(run_, bench_.identities, schedule_, note_);
  picture_.resume_file = kept_->path();
  picture_.steps_resumed = progress_.resumed = kept_->Load(latents_, *step_cache_);
  picture_.steps_run = settings_.steps_run() - picture_.steps_resumed;
}

void Drawing::Denoise() {
  const Timed timed(picture_.seconds.denoise);
  {
    Denoising denoising(run_, text_, negative_ ? &*negative_ : nullptr, pictures_.references, note_);
    for (int64_t step = picture_.steps_resumed; step < settings_.steps_run(); ++step) {
      Report(Progress::Stage::kDenoise, step);
      DenoiseStep(denoising, step);
    }
    Report(Progress::Stage::kDenoise, settings_.steps_run());
    run_.tap("final_latents_packed", latents_);
  }  // the next stage uses the memory of `denoising`
  model_.ReleasePages(Component::kTransformer);
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
  kept_->Save(step + 1, latents_, *step_cache_);
  if (hooks_.on_preview && step + 1 < settings_.steps_run())
    hooks_.on_preview(Preview(run_, latents_, velocity, next_sigma));
}

void Drawing::Decode() {
  const Timed timed(picture_.seconds.decode);
  Report(Progress::Stage::kDecode, settings_.steps_run());
  Tensor unpacked = model_.autoencoder().Unpack(latents_, settings_.grid);
  drawn_ = ToImage(model_, DecodePicture(run_, std::move(unpacked)));
  model_.ReleasePages(Component::kVae);
}

SourceReport Drawing::ReportSource(const Image& original, const Image& sized_original,
                                   const Image& result) const {
  const Margins& margins = request_.outpaint;
  const bool own_size = !source_ && (request_.width || request_.height);  // an edit at a size of its own
  return {.input_width = original.width - margins.left - margins.right,
          .input_height = original.height - margins.top - margins.bottom,
          .enlarged_width = original.width,
          .enlarged_height = original.height,
          .working_width = settings_.width,
          .working_height = settings_.height,
          .stretch_percent = own_size ? 0 : StretchPercent(original, result),
          .alignment = image::MeasureAlignment(sized_original, result, bench_.pool)};
}

Picture Drawing::Finish() {
  {
    const Timed timed(picture_.seconds.decode);
    picture_.width = settings_.output_width;
    picture_.height = settings_.output_height;
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
      if (source_ && source_->mask && request_.blend)
        result = image::Blend(sized_original, result, sized(*source_->mask));
    }
    if (settings_.background) result = Flatten(std::move(result), *settings_.background);
    picture_.channels = result.channels;
    picture_.pixels = std::move(result.pixels);
    picture_.png_text = PngText(LibraryRecord(picture_, request_, opened_));
  }
  ReportFraction(1);
  return std::move(picture_);
}

}  // namespace qwen_image::draw
