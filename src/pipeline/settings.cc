#include "pipeline/settings.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "core/tensor.h"
#include "model/prompt.h"
#include "weights/model_defaults.h"

namespace qwen_image {
namespace {

constexpr int64_t kMaxSide = 8192;
constexpr int64_t kMaxSteps = 1000;

int64_t NearestValidSide(int64_t side) {
  return std::clamp((side + kPixelsPerToken / 2) / kPixelsPerToken * kPixelsPerToken, kPixelsPerToken,
                    kMaxSide);
}

void CheckSize(int64_t width, int64_t height) {
  const auto valid = [](int64_t side) {
    return side >= 1 && side <= kMaxSide && side % kPixelsPerToken == 0;
  };
  if (valid(width) && valid(height)) return;
  Fail(ErrorKind::kUsage,
       "a picture of {}x{} is impossible: both sides must be multiples of {} from {} to {}; the nearest "
       "valid size is {}x{}",
       width, height, kPixelsPerToken, kPixelsPerToken, kMaxSide,
       NearestValidSide(std::clamp<int64_t>(width, 0, kMaxSide)),
       NearestValidSide(std::clamp<int64_t>(height, 0, kMaxSide)));
}

void CheckLatents(const InitialLatents& latents, TokenGrid grid, int64_t channels) {
  const Shape packed = {1, grid.height * grid.width, 4 * channels};
  const Shape plain = {1, 1, channels, 2 * grid.height, 2 * grid.width};
  if (latents.shape != packed && latents.shape != plain) {
    Fail(ErrorKind::kUsage, "the initial latents have shape {}, but a picture of {}x{} needs {} or {}",
         ToString(latents.shape), grid.width * kPixelsPerToken, grid.height * kPixelsPerToken,
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

}  // namespace

Settings ResolveSettings(const GenerateRequest& request, const Defaults& defaults, int64_t latent_channels) {
  Settings s;
  s.negative_prompt = request.negative_prompt.value_or(defaults.negative_prompt);
  s.width = request.width.value_or(defaults.width);
  s.height = request.height.value_or(defaults.height);
  s.steps = request.steps.value_or(defaults.steps);
  s.cfg = request.cfg.value_or(defaults.cfg);
  CheckSize(s.width, s.height);
  s.grid = {s.height / kPixelsPerToken, s.width / kPixelsPerToken};
  if (s.steps < 1 || s.steps > kMaxSteps) {
    Fail(ErrorKind::kUsage, "steps must be from 1 to {}, not {}", kMaxSteps, s.steps);
  }
  if (!(s.cfg >= 0 && s.cfg <= 1000))
    Fail(ErrorKind::kUsage, "cfg must be a number from 0 to 1000 (1 is off), not {}", s.cfg);
  if (request.max_sequence_length < 1 || request.max_sequence_length > kTokenizerMaxLength) {
    Fail(ErrorKind::kUsage, "the maximum sequence length must be from 1 to {}, not {}", kTokenizerMaxLength,
         request.max_sequence_length);
  }
  if (!(request.step_cache >= 0 && request.step_cache <= 1)) {
    Fail(ErrorKind::kUsage, "the threshold of the step cache must be a number from 0 (off) to 1, not {}",
         request.step_cache);
  }
  if (request.latents) CheckLatents(*request.latents, s.grid, latent_channels);
  return s;
}

bool IsDistilled(const SchedulerConfig& scheduler) {
  return scheduler.use_dynamic_shifting && scheduler.base_shift == scheduler.max_shift &&
         !scheduler.shift_terminal;
}

Defaults OfficialDefaults(const SchedulerConfig& scheduler) {
  Defaults defaults;  // as the model's card uses it
  if (IsDistilled(scheduler)) {
    defaults.steps = 8;
    defaults.cfg = 1.0;
  }
  return defaults;
}

Defaults DefaultsFor(const ModelParts& parts, const SchedulerConfig& scheduler) {
  Defaults defaults = OfficialDefaults(scheduler);
  const ModelDefaults own = ReadModelDefaults(parts.root);
  defaults.width = own.width.value_or(defaults.width);
  defaults.height = own.height.value_or(defaults.height);
  defaults.steps = own.steps.value_or(defaults.steps);
  defaults.cfg = own.cfg.value_or(defaults.cfg);
  defaults.negative_prompt = own.negative_prompt.value_or(defaults.negative_prompt);
  return defaults;
}

void UseLightning(const std::vector<AppliedLora>& loras, SchedulerConfig& scheduler, Defaults& defaults) {
  int64_t steps = 0;
  for (const AppliedLora& lora : loras) {
    if (lora.scale != 0) steps = std::max(steps, lora.lightning_steps);
  }
  if (steps == 0 || IsDistilled(scheduler)) return;
  scheduler = LightningScheduler();
  defaults.steps = steps;
  defaults.cfg = 1.0;
  defaults.lightning = true;
}

}  // namespace qwen_image
