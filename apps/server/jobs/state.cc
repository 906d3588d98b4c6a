#include "server/jobs/state.h"

namespace qwen_image::jobs {

const char* Name(State state) {
  switch (state) {
    case State::kQueued:
      return "queued";
    case State::kRunning:
      return "running";
    case State::kDone:
      return "done";
    case State::kFailed:
      return "failed";
    case State::kCancelled:
      return "cancelled";
    case State::kInterrupted:
      break;
  }
  return "interrupted";
}

}  // namespace qwen_image::jobs
