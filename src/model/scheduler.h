// FlowMatchEulerDiscreteScheduler: the noise levels of a run and the Euler step between two of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "files/json.h"

namespace qwen_image {

struct SchedulerConfig {
  int64_t num_train_timesteps = 1000;
  double shift = 1.0;
  bool use_dynamic_shifting = false;
  double base_shift = 0.5;
  double max_shift = 1.15;
  int64_t base_image_seq_len = 256;
  int64_t max_image_seq_len = 4096;
  std::optional<double> shift_terminal;
  enum class TimeShift { kExponential, kLinear } time_shift_type = TimeShift::kExponential;
};

SchedulerConfig ReadSchedulerConfig(const std::filesystem::path& folder);
Json SchedulerConfigJson(const SchedulerConfig& config);  // as diffusers writes it
// Of Qwen-Image as published, for models whose files bring none.
SchedulerConfig OfficialScheduler();
// Of models distilled to a few steps: the same shift, ln 3, for all sizes.
SchedulerConfig LightningScheduler();

// Distilled models (Lightning) bring a schedule with a constant shift and no terminal; they need no guidance.
bool IsDistilled(const SchedulerConfig& scheduler);

struct Schedule {
  std::vector<float> sigmas;     // [steps + 1], from 1 down to 0
  std::vector<float> timesteps;  // [steps], sigma × num_train_timesteps
};

// The schedule for a picture of `image_tokens` tokens. One step is [1, 0] (diffusers divides zero by zero
// there).
Schedule MakeSchedule(const SchedulerConfig& config, int64_t steps, int64_t image_tokens);
// The same from noise levels that were given: they are shifted and stretched as those of any other run.
Schedule ScheduleFromSigmas(const SchedulerConfig& config, std::span<const double> sigmas,
                            int64_t image_tokens);

// Returns why the sigmas are not valid, or an empty text. They must fall, from 1 or less to more than 0.
std::string WhyNotSigmas(std::span<const double> sigmas);

// latents += (sigmas[step + 1] − sigmas[step]) · velocity
void EulerStep(const Schedule& schedule, int64_t step, const Tensor& velocity, Tensor& latents);

}  // namespace qwen_image
