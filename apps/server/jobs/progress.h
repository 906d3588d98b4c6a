// How far a job is, from what the pipeline says about one picture.
#pragma once

#include <chrono>

#include "server/jobs/state.h"

namespace qwen_image::jobs {

class ProgressMeter {
 public:
  explicit ProgressMeter(int64_t pictures) : pictures_(pictures) {}

  void BeginPicture(int64_t index);
  JobProgress Update(const Progress& progress);

 private:
  using Clock = std::chrono::steady_clock;

  int64_t pictures_;
  Clock::time_point picture_begin_, denoise_begin_;
  bool denoising_ = false;
  double seconds_per_picture_ = 0;  // of the last finished one
  JobProgress now_;
};

}  // namespace qwen_image::jobs
