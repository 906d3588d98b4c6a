#include "server/jobs/state.h"

#include "options/field.h"

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

Job NewJob(const Request& asked, const Defaults& defaults, const std::string& id, int64_t created) {
  const GenerateRequest& r = asked.request;
  Job job{.id = id,
          .created = created,
          .settings = options::WithoutData(r),
          .count = asked.count,
          .input_images = static_cast<int64_t>(r.input_images.size()),
          .has_init_image = r.init_image.has_value(),
          .has_mask = r.mask.has_value(),
          .notes = asked.notes};
  GenerateRequest& settings = job.settings;
  if (!settings.negative_prompt) settings.negative_prompt = defaults.negative_prompt;
  if (!settings.steps)
    settings.steps = r.sigmas.empty() ? defaults.steps : static_cast<int64_t>(r.sigmas.size());
  if (!settings.cfg) settings.cfg = defaults.cfg;
  if (r.input_images.empty() && !r.init_image) {  // else the size follows from a picture
    if (!settings.width) settings.width = defaults.width;
    if (!settings.height) settings.height = defaults.height;
  }
  return job;
}

}  // namespace qwen_image::jobs
