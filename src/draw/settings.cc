#include "draw/settings.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "core/tensor.h"
#include "draw/source.h"
#include "files/text.h"
#include "options/field.h"

namespace qwen_image::draw {
namespace {

int64_t NearestValidSide(int64_t side, const Geometry& g) {
  return std::clamp((side + g.side_multiple / 2) / g.side_multiple * g.side_multiple, g.side_multiple,
                    g.max_side);
}

void CheckSize(int64_t width, int64_t height, const Geometry& g) {
  const auto valid = [&](int64_t side) {
    return side >= 1 && side <= g.max_side && side % g.side_multiple == 0;
  };
  if (valid(width) && valid(height)) return;
  Fail(ErrorKind::kUsage,
       "a picture of {}x{} is impossible: both sides must be multiples of {} from {} to {}; the nearest "
       "valid size is {}x{}",
       width, height, g.side_multiple, g.side_multiple, g.max_side,
       NearestValidSide(std::clamp<int64_t>(width, 0, g.max_side), g),
       NearestValidSide(std::clamp<int64_t>(height, 0, g.max_side), g));
}

void CheckLatents(const InitialLatents& latents, TokenGrid grid, const Geometry& g) {
  const Shape packed = g.PackedShape(grid), plain = g.PlainShape(grid);
  if (latents.shape != packed && latents.shape != plain) {
    Fail(ErrorKind::kUsage, "the initial latents have shape {}, but a picture of {}x{} needs {} or {}",
         ToString(latents.shape), grid.width * g.pixels_per_token(), grid.height * g.pixels_per_token(),
         ToString(packed), ToString(plain));
  }
  if (static_cast<int64_t>(latents.values.size()) != ElementCount(packed)) {
    Fail(ErrorKind::kUsage, "the initial latents hold {} values instead of {}", latents.values.size(),
         ElementCount(packed));
  }
  if (!std::all_of(latents.values.begin(), latents.values.end(), [](float v) { return std::isfinite(v); })) {
    Fail(ErrorKind::kBadInput, "the initial latents hold NaN or infinite values");
  }
}

// A picture to begin with is drawn at its own size, if that is about what the model is made for; else at the
// model's area. The ratio stays as far as whole tokens allow.
ImageSize SizeLike(ImageSize source, const Defaults& defaults, const Geometry& g) {
  constexpr double kLeast = 0.25, kMost = 1.5;  // of the model's area
  const auto area = static_cast<double>(defaults.width * defaults.height);
  const double share = static_cast<double>(source.width) * static_cast<double>(source.height) / area;
  const double factor = share >= kLeast && share <= kMost ? 1 : std::sqrt(1 / share);
  const auto side = [&](int64_t length) {
    const double wanted = static_cast<double>(length) * factor;
    return NearestValidSide(std::llround(std::min(wanted, static_cast<double>(g.max_side))), g);
  };
  return {side(source.width), side(source.height)};
}

// How much wider one shape is than another, or narrower: 1 for the same.
double Stretch(ImageSize a, ImageSize b) {
  const double quotient = static_cast<double>(a.width * b.height) / static_cast<double>(a.height * b.width);
  return std::max(quotient, 1 / quotient);
}

constexpr double kMostStretch = 1.1;

void CheckNotSquashed(ImageSize original, const Settings& s) {
  if (Stretch(original, {s.width, s.height}) > kMostStretch)
    Fail(ErrorKind::kUsage,
         "a result of {}x{} would be squashed to keep the picture's size of {}x{}; leave out either the size "
         "or keep-size",
         s.width, s.height, original.width, original.height);
}

// The size to draw at: as asked for, else as the pictures or the model suggest.
void ResolveSize(const GenerateRequest& request, const ModelTraits& model, std::optional<ImageSize> source,
                 Settings& s) {
  ImageSize size = {model.defaults.width, model.defaults.height};
  std::optional<ImageSize> original = source;
  if (!request.input_images.empty()) {
    std::vector<ImageSize> inputs;
    for (const Image& image : request.input_images)
      inputs.push_back(source.value_or(ImageSize{image.width, image.height}));
    s.repairs = source.has_value();
    s.references = model.plan_edit(inputs, s.repairs);
    original = inputs.back();
    size = s.references.back().vae;  // the last one decides
    const bool other_size = request.width.value_or(size.width) != size.width ||
                            request.height.value_or(size.height) != size.height;
    if (source && other_size)
      Fail(ErrorKind::kUsage,
           "an edit with a mask or margins is drawn at the size of its input image; leave out "
           "the size (or use keep-size for the input's own)");
  } else if (source) {
    size = SizeLike(*source, model.defaults, model.geometry);
  }
  s.width = request.width.value_or(size.width);
  s.height = request.height.value_or(size.height);
  CheckSize(s.width, s.height, model.geometry);
  s.grid = model.geometry.GridOf({s.width, s.height});
  // A blended picture has the source's own pixels, if no other size is asked for.
  const bool blends = source && request.blend && (request.mask || request.outpaint.any());
  const bool as_original = request.keep_size || (blends && !request.width && !request.height);
  if (request.keep_size && !original)
    Fail(ErrorKind::kUsage, "keeping the size needs an input picture, and there is none");
  if (request.keep_size && (request.width || request.height)) CheckNotSquashed(*original, s);
  s.output_width = as_original ? original->width : s.width;
  s.output_height = as_original ? original->height : s.height;
}

// get_timesteps of diffusers' image-to-image pipelines.
void ResolveStrength(const GenerateRequest& request, Settings& s) {
  constexpr double kDefaultStrength = 0.6;
  s.strength = request.strength.value_or(request.outpaint.any() ? 1.0 : kDefaultStrength);
  const auto steps = static_cast<double>(s.steps);
  s.first_step = static_cast<int64_t>(std::max(steps - std::min(steps * *s.strength, steps), 0.0));
  if (s.steps_run() < 1)
    Fail(ErrorKind::kUsage,
         "a strength of {} leaves none of {} steps to run; the picture would stay as it is", *s.strength,
         s.steps);
}

// Noise levels that were given, or that the model was made for, are as many as the steps.
void ResolveSteps(const GenerateRequest& request, const ModelTraits& model, Settings& s) {
  s.sigmas = request.sigmas.empty() ? model.sigmas : request.sigmas;
  if (!request.sigmas.empty()) {
    if (const std::string why = WhyNotSigmas(request.sigmas); !why.empty())
      Fail(ErrorKind::kUsage, "the sigmas are not valid: {}", why);
  }
  const auto given = static_cast<int64_t>(s.sigmas.size());
  s.steps = request.steps.value_or(given > 0 ? given : model.defaults.steps);
  if (given == 0 || s.steps == given) return;
  if (!request.sigmas.empty())
    Fail(ErrorKind::kUsage, "{} sigmas are {} steps, not {}; leave out the steps", given, given, s.steps);
  Fail(ErrorKind::kUsage,
       "this model has fixed noise levels for {} steps and cannot be drawn in {}; leave out the steps, or "
       "give "
       "sigmas",
       given, s.steps);
}

constexpr const char* kTransparent = "transparent";

bool HasAlpha(const ModelTraits& model) { return model.geometry.pixel_channels == 4; }

void ResolveBackground(const GenerateRequest& request, const ModelTraits& model, Settings& s) {
  if (request.background.empty()) return;
  if (request.background == kTransparent) {
    if (!HasAlpha(model))
      Fail(ErrorKind::kUsage,
           "this model draws no transparent pictures: its background cannot be transparent; leave it out");
    return;
  }
  const std::optional<Colour> colour = ParseColour(request.background);
  if (!colour)
    Fail(ErrorKind::kUsage, "{} is not a background; write a colour as #rrggbb or by its name ({}), or {}",
         Quoted(request.background), ColourNames(), kTransparent);
  if (HasAlpha(model)) s.background = colour;
}

}  // namespace

Settings ResolveSettings(const GenerateRequest& request, const ModelTraits& model) {
  const Defaults& defaults = model.defaults;
  Settings s;
  s.negative_prompt = request.negative_prompt.value_or(defaults.negative_prompt);
  ResolveSteps(request, model, s);
  s.cfg = request.cfg.value_or(defaults.cfg);
  const std::optional<ImageSize> source = SourceSize(request);
  ResolveSize(request, model, source, s);
  options::CheckRanges(request);
  if (source) ResolveStrength(request, s);
  ResolveBackground(request, model, s);
  if (request.max_sequence_length < 1 || request.max_sequence_length > model.max_prompt_tokens) {
    Fail(ErrorKind::kUsage, "the maximum sequence length must be from 1 to {}, not {}",
         model.max_prompt_tokens, request.max_sequence_length);
  }
  if (request.latents) CheckLatents(*request.latents, s.grid, model.geometry);
  return s;
}

std::vector<std::string> SizeNotes(const GenerateRequest& request, const Settings& s,
                                   const ModelTraits& model) {
  constexpr double kMostEnlargement = 1.5;
  std::vector<std::string> notes;
  if (!model.note.empty()) notes.push_back(model.note);
  if (request.mask) {
    const Image& image = request.init_image ? *request.init_image : request.input_images.front();
    const ImageSize picture = {image.width, image.height}, mask = {request.mask->width, request.mask->height};
    if (Stretch(picture, mask) > kMostStretch)
      notes.push_back(
          fmt::format("the mask of {}x{} has another shape than the picture of {}x{}, and is stretched to it",
                      mask.width, mask.height, picture.width, picture.height));
  }
  if (static_cast<double>(s.output_width) > kMostEnlargement * static_cast<double>(s.width))
    notes.push_back(
        fmt::format("the picture is drawn at {}x{}, the size the model is made for, and enlarged to {}x{}",
                    s.width, s.height, s.output_width, s.output_height));
  if (model.note_on_size) {
    const std::string note = model.note_on_size({s.width, s.height}, !s.references.empty());
    if (!note.empty()) notes.push_back(note);
  }
  return notes;
}

std::string BackgroundNote(const GenerateRequest& request, const ModelTraits& model) {
  if (request.background.empty() || HasAlpha(model)) return "";
  return "this model draws no transparent parts, so the background has no effect";
}

Schedule ScheduleOf(const SchedulerConfig& scheduler, const Settings& settings) {
  const int64_t tokens = settings.grid.tokens();
  Schedule schedule = settings.sigmas.empty() ? MakeSchedule(scheduler, settings.steps, tokens)
                                              : ScheduleFromSigmas(scheduler, settings.sigmas, tokens);
  schedule.sigmas.erase(schedule.sigmas.begin(), schedule.sigmas.begin() + settings.first_step);
  schedule.timesteps.erase(schedule.timesteps.begin(), schedule.timesteps.begin() + settings.first_step);
  return schedule;
}

}  // namespace qwen_image::draw
