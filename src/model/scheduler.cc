#include "model/scheduler.h"

#include <cmath>

#include "core/fail.h"
#include "files/text.h"
#include "weights/config_reader.h"

namespace qwen_image {
namespace {

// How far to shift the schedule towards noise: linear in the number of tokens.
double CalculateShift(const SchedulerConfig& c, int64_t image_tokens) {
  const double slope =
      (c.max_shift - c.base_shift) / static_cast<double>(c.max_image_seq_len - c.base_image_seq_len);
  const double offset = c.base_shift - slope * static_cast<double>(c.base_image_seq_len);
  return static_cast<double>(image_tokens) * slope + offset;
}

// The arithmetic below is in float, in the reference's order, so that the sigmas agree to the last bits.
float ShiftSigma(const SchedulerConfig& c, double mu, float sigma) {
  if (!c.use_dynamic_shifting) {
    const auto shift = static_cast<float>(c.shift);
    return shift * sigma / (1.0f + static_cast<float>(c.shift - 1.0) * sigma);
  }
  const auto amount =
      static_cast<float>(c.time_shift_type == SchedulerConfig::TimeShift::kExponential ? std::exp(mu) : mu);
  return amount / (amount + (1.0f / sigma - 1.0f));
}

// Stretches the schedule so that its last sigma is `terminal`.
void StretchToTerminal(std::vector<float>& sigmas, double terminal) {
  const float last = 1.0f - sigmas.back();
  if (last == 0.0f) return;  // a single step: there is nothing to stretch
  const float scale = last / static_cast<float>(1.0 - terminal);
  for (float& sigma : sigmas) sigma = 1.0f - (1.0f - sigma) / scale;
}

}  // namespace

SchedulerConfig OfficialScheduler() {
  return {.use_dynamic_shifting = true,
          .base_shift = 0.5,
          .max_shift = 0.9,
          .base_image_seq_len = 256,
          .max_image_seq_len = 8192,
          .shift_terminal = 0.02};
}

SchedulerConfig LightningScheduler() {
  SchedulerConfig config = OfficialScheduler();
  config.base_shift = config.max_shift = std::log(3.0);
  config.shift_terminal.reset();
  return config;
}

SchedulerConfig ReadSchedulerConfig(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "scheduler_config.json";
  const Json json = ReadJsonFile(path);
  const ConfigReader config(json, path.string());
  const std::string class_name = config.String("_class_name", "FlowMatchEulerDiscreteScheduler");
  if (class_name != "FlowMatchEulerDiscreteScheduler") {
    Fail(ErrorKind::kBadInput,
         "{}: the scheduler {} is not supported (expected FlowMatchEulerDiscreteScheduler)", config.where(),
         Quoted(class_name));
  }
  for (const char* key : {"invert_sigmas", "use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas",
                          "stochastic_sampling"}) {
    if (config.Bool(key, false)) Fail(ErrorKind::kBadInput, "{}: {} is not supported", config.where(), key);
  }

  SchedulerConfig c;
  c.num_train_timesteps = config.Int("num_train_timesteps", 1, 1 << 24, c.num_train_timesteps);
  c.shift = config.Number("shift", c.shift);
  c.use_dynamic_shifting = config.Bool("use_dynamic_shifting", c.use_dynamic_shifting);
  c.base_shift = config.Number("base_shift", c.base_shift);
  c.max_shift = config.Number("max_shift", c.max_shift);
  c.base_image_seq_len = config.Int("base_image_seq_len", 1, 1 << 24, c.base_image_seq_len);
  c.max_image_seq_len = config.Int("max_image_seq_len", 1, 1 << 24, c.max_image_seq_len);
  // diffusers treats a terminal of 0 as none.
  if (config.Has("shift_terminal") && config.Number("shift_terminal") != 0)
    c.shift_terminal = config.Number("shift_terminal");
  const std::string type = config.String("time_shift_type", "exponential");
  if (type != "exponential" && type != "linear") {
    Fail(ErrorKind::kBadInput, "{}: time_shift_type is {}, expected exponential or linear", config.where(),
         Quoted(type));
  }
  c.time_shift_type =
      type == "linear" ? SchedulerConfig::TimeShift::kLinear : SchedulerConfig::TimeShift::kExponential;
  if (c.max_image_seq_len == c.base_image_seq_len || !(c.shift > 0) ||
      (c.shift_terminal && !(*c.shift_terminal > 0 && *c.shift_terminal < 1))) {
    Fail(ErrorKind::kBadInput,
         "{}: impossible schedule (equal base and max sequence lengths, a shift that is not positive, "
         "or a shift_terminal outside 0…1)",
         config.where());
  }
  return c;
}

Schedule MakeSchedule(const SchedulerConfig& config, int64_t steps, int64_t image_tokens) {
  if (steps < 1) Fail(ErrorKind::kUsage, "steps must be at least 1, not {}", steps);
  const double last = 1.0 / static_cast<double>(steps);  // linspace(1, 1 / steps, steps)
  const double delta = steps > 1 ? (last - 1.0) / static_cast<double>(steps - 1) : 0.0;
  std::vector<double> sigmas;
  for (int64_t i = 0; i < steps; ++i)
    sigmas.push_back(i > 0 && i == steps - 1 ? last : static_cast<double>(i) * delta + 1.0);
  return ScheduleFromSigmas(config, sigmas, image_tokens);
}

Schedule ScheduleFromSigmas(const SchedulerConfig& config, std::span<const double> sigmas,
                            int64_t image_tokens) {
  const double mu = CalculateShift(config, image_tokens);
  Schedule schedule;
  for (const double sigma : sigmas)
    schedule.sigmas.push_back(ShiftSigma(config, mu, static_cast<float>(sigma)));
  if (config.shift_terminal) StretchToTerminal(schedule.sigmas, *config.shift_terminal);
  for (float sigma : schedule.sigmas) {
    schedule.timesteps.push_back(sigma * static_cast<float>(config.num_train_timesteps));
  }
  schedule.sigmas.push_back(0.0f);
  return schedule;
}

std::string WhyNotSigmas(std::span<const double> sigmas) {
  constexpr size_t kMost = 1000;
  if (sigmas.empty() || sigmas.size() > kMost)
    return fmt::format("1 to {} values are expected, not {}", kMost, sigmas.size());
  for (size_t i = 0; i < sigmas.size(); ++i) {
    if (!(sigmas[i] > 0 && sigmas[i] <= 1))
      return fmt::format("{} is not a noise level, which is above 0 and at most 1", sigmas[i]);
    if (i > 0 && sigmas[i] >= sigmas[i - 1])
      return fmt::format("{} follows {}, but noise levels must fall", sigmas[i], sigmas[i - 1]);
  }
  return "";
}

void EulerStep(const Schedule& schedule, int64_t step, const Tensor& velocity, Tensor& latents) {
  const auto i = static_cast<size_t>(step);
  const float dt = schedule.sigmas[i + 1] - schedule.sigmas[i];
  for (int64_t j = 0; j < latents.size(); ++j) latents[j] += dt * velocity[j];
}

bool IsDistilled(const SchedulerConfig& scheduler) {
  return scheduler.use_dynamic_shifting && scheduler.base_shift == scheduler.max_shift &&
         !scheduler.shift_terminal;
}

Json SchedulerConfigJson(const SchedulerConfig& config) {
  return {{"_class_name", "FlowMatchEulerDiscreteScheduler"},
          {"base_image_seq_len", config.base_image_seq_len},
          {"base_shift", config.base_shift},
          {"max_image_seq_len", config.max_image_seq_len},
          {"max_shift", config.max_shift},
          {"num_train_timesteps", config.num_train_timesteps},
          {"shift", config.shift},
          {"shift_terminal", config.shift_terminal ? Json(*config.shift_terminal) : Json()},
          {"time_shift_type",
           config.time_shift_type == SchedulerConfig::TimeShift::kLinear ? "linear" : "exponential"},
          {"use_dynamic_shifting", config.use_dynamic_shifting}};
}

}  // namespace qwen_image
