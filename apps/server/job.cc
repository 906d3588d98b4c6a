#include "job.h"

namespace qwen_image::server {

const char* Name(JobState state) {
  switch (state) {
    case JobState::kQueued:
      return "queued";
    case JobState::kRunning:
      return "running";
    case JobState::kDone:
      return "done";
    case JobState::kFailed:
      return "failed";
    case JobState::kCancelled:
      return "cancelled";
    case JobState::kInterrupted:
      break;
  }
  return "interrupted";
}

}  // namespace qwen_image::server
