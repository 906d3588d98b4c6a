// From a request to a picture, in numbered steps. Text alone is the plain case: what has to do with pictures
// is empty then.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "core/fail.h"
#include "kernels/resize.h"
#include "model/token_latents.h"
#include "pipeline/alignment.h"
#include "pipeline/drawn_record.h"
#include "pipeline/memory_check.h"
#include "pipeline/preview.h"
#include "pipeline/resume.h"
#include "pipeline/stages.h"
#include "pipeline/step_cache.h"
#include "qwen_image/cancel.h"

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

// What the models of an edit see: with margins, the enlarged picture.
std::span<const Image> InputImages(const GenerateRequest& request, const std::optional<Source>& source) {
  if (source && !request.input_images.empty()) return {&source->image, 1};
  return request.input_images;
}

double StretchPercent(const Image& from, const Picture& to) {
  return 100 *
         (static_cast<double>(to.width * from.height) / static_cast<double>(to.height * from.width) - 1);
}

void FinishPicture(const GenerateRequest& request, const Settings& settings,
                   const std::optional<Source>& source, std::span<const Image> images, Image drawn,
                   ThreadPool& pool, Picture& picture) {
  picture.width = settings.output_width;
  picture.height = settings.output_height;
  const auto sized = [&](const auto& image) {
    if (image.width == picture.width && image.height == picture.height) return image;
    return Resize(image, picture.width, picture.height, ResizeFilter::kLanczos, pool);
  };
  Image result = sized(drawn);
  const Image* original = source ? &source->image : images.empty() ? nullptr : &images.back();
  if (original) {
    const Margins& margins = request.outpaint;
    const Image sized_original = sized(*original);
    const bool anew = !source && (request.width || request.height);  // an edit at a size of its own
    picture.source = SourceReport{.input_width = original->width - margins.left - margins.right,
                                  .input_height = original->height - margins.top - margins.bottom,
                                  .enlarged_width = original->width,
                                  .enlarged_height = original->height,
                                  .working_width = settings.width,
                                  .working_height = settings.height,
                                  .stretch_percent = anew ? 0 : StretchPercent(*original, picture),
                                  .alignment = MeasureAlignment(sized_original, result, pool)};
    if (source && source->mask && request.blend) result = Blend(sized_original, result, sized(*source->mask));
  }
  if (settings.background) result = Flatten(std::move(result), *settings.background);
  picture.channels = result.channels;
  picture.pixels = std::move(result.pixels);
}

// For those who hold pictures and not files.
Json LibraryRecord(const Pipeline::Impl& model, const GenerateRequest& request, const Picture& picture) {
  Json record = DrawnRecord(picture, request, model.name, model);
  NameSources(request, "given", record);
  return record;
}

// Weights go after their stage; those of a run that was stopped or failed go with it.
class ReleaseAtEnd {
 public:
  explicit ReleaseAtEnd(const Pipeline::Impl& model) : model_(model) {}
  ~ReleaseAtEnd() { model_.model->ReleasePages(); }
  ReleaseAtEnd(const ReleaseAtEnd&) = delete;
  ReleaseAtEnd& operator=(const ReleaseAtEnd&) = delete;

 private:
  const Pipeline::Impl& model_;
};

}  // namespace

Picture Pipeline::Generate(const GenerateRequest& asked, const GenerateHooks& hooks) const {
  // 1. Check the request and fill in the defaults.
  const Pipeline::Impl& model = *impl_;
  const Settings settings = model.Resolve(asked);
  const std::optional<GenerateRequest> suited = WithPicturesOf(channels(), asked);
  const GenerateRequest& request = suited ? *suited : asked;
  CheckCanBeWatched(request, hooks);
  const Turns::Turn turn(model.turns, hooks.cancel, hooks.on_wait);
  const ReleaseAtEnd release(model);
  if (model.check_memory) CheckWorkspaceFits(model, request, settings);
  const CancelFlag never;
  Progress progress{
      .stage = Progress::Stage::kEncodePrompt, .step = 0, .steps = settings.steps_run(), .fraction = 0};
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
  Picture picture{.pixels = {},
                  .prompt = request.prompt,
                  .negative_prompt = settings.negative_prompt,
                  .steps = settings.steps,
                  .cfg = settings.cfg,
                  .seed = request.seed,
                  .strength = settings.strength};
  const KeptRun::Note note = [&](const std::string& text) {
    picture.notes.push_back(text);
    if (hooks.on_note) hooks.on_note(text);
  };
  for (const std::string& text : SizeNotes(request, settings, model.model->traits())) note(text);
  if (const std::string text = BackgroundNote(request, model.model->traits()); !text.empty()) note(text);

  // 2. Turn the prompts into embeddings; those of an edit see the pictures, too.
  Stopwatch encode_watch;
  report(Progress::Stage::kEncodePrompt, 0);
  const std::optional<Source> source = SourceOf(request, model.pool);
  const std::span<const Image> images = InputImages(request, source);
  SeenPictures seen = LookAtPictures(model, run, images);
  const EncodedText text = EncodeText(model, run, request.prompt, Which::kPositive, seen);
  std::optional<EncodedText> negative;
  if (settings.guided()) negative = EncodeText(model, run, settings.negative_prompt, Which::kNegative, seen);
  picture.prompt_tokens = text.prompt_tokens;
  picture.prompt_truncated = text.truncated;
  picture.prompt_from_cache = text.from_cache && (!negative || negative->from_cache);
  model.model->ReleasePages(
      Component::kTextEncoder);  // memory for the next stage; a later run finds them in the page cache
  picture.seconds.encode_prompt = encode_watch.Seconds();

  // 3. Turn the pictures into latents.
  Stopwatch pictures_watch;
  TorchGenerator generator(request.seed);
  if (source || !images.empty()) report(Progress::Stage::kEncodePictures, 0);
  const PictureLatents pictures = EncodePictures(model, run, images, source, generator);
  model.model->ReleasePages(Component::kVae);
  picture.seconds.encode_pictures = pictures_watch.Seconds();

  // 4. Draw the noise, 5. lay out the noise levels; or take up what an earlier run left.
  Stopwatch denoise_watch;
  const Schedule schedule = MakeTappedSchedule(model, run);
  Tensor noise = DrawNoise(model, run, generator);
  Tensor latents = source ? MixWithNoise(pictures.source, noise, schedule.sigmas.front()) : noise.Clone();
  run.tap("initial_latents_packed", latents);
  StepCache step_cache(request.step_cache, schedule);
  KeptRun kept(model, run, schedule, note);
  picture.resume_file = kept.path();
  picture.steps_resumed = progress.resumed = kept.Load(latents, step_cache);
  picture.steps_run = settings.steps_run() - picture.steps_resumed;

  // 6. Denoise step by step.
  std::optional<Denoising> denoising(std::in_place, model, run, text, negative ? &*negative : nullptr,
                                     pictures.references, note);
  for (int64_t step = picture.steps_resumed; step < settings.steps_run(); ++step) {
    report(Progress::Stage::kDenoise, step);
    if (run.tap) run.tap(fmt::format("packed_latents_step{}", step), latents);
    Tensor velocity = step_cache.Velocity(step, [&] {
      const float timestep = schedule.timesteps[static_cast<size_t>(step)] / 1000.0f;
      return denoising->Velocity(latents, timestep, step);
    });
    if (run.tap) run.tap(fmt::format("noise_pred_step{}", step), velocity);
    EulerStep(schedule, step, velocity, latents);
    if (pictures.mask.size() > 0) {
      const float sigma = schedule.sigmas[static_cast<size_t>(step + 1)];
      RestoreUnmasked(pictures.mask, MixWithNoise(pictures.source, noise, sigma), latents);
    }
    kept.Save(step + 1, latents, step_cache);
    if (hooks.on_preview && step + 1 < settings.steps_run())
      hooks.on_preview(
          Preview(model, run, latents, velocity, schedule.sigmas[static_cast<size_t>(step + 1)]));
  }
  report(Progress::Stage::kDenoise, settings.steps_run());
  run.tap("final_latents_packed", latents);
  denoising.reset();  // its memory is the next stage's
  model.model->ReleasePages(Component::kTransformer);
  picture.steps_estimated = step_cache.reused();
  picture.seconds.denoise = denoise_watch.Seconds();

  // 7. Decode the latents into pixels.
  Stopwatch decode_watch;
  report(Progress::Stage::kDecode, settings.steps_run());
  Tensor unpacked = model.model->autoencoder().Unpack(latents, settings.grid);
  Image drawn = ToImage(model, DecodePicture(model, run, std::move(unpacked)));
  model.model->ReleasePages(Component::kVae);

  // 8. Bring the result to the size of what it was made from, and lay it over that, and on its background.
  FinishPicture(request, settings, source, images, std::move(drawn), model.pool, picture);
  picture.png_text = PngText(LibraryRecord(model, request, picture));
  picture.seconds.decode = decode_watch.Seconds();
  report_fraction(1);
  return picture;
}

}  // namespace qwen_image
