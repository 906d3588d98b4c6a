// Drawing one picture of a job: the same for the server's own thread and for a worker of another machine.
#pragma once

#include <functional>
#include <string>

#include "draw/record.h"
#include "server/jobs/progress.h"
#include "server/jobs/state.h"

namespace qwen_image::jobs {

struct DrawingHooks {
  std::function<void(const JobProgress&)> on_progress;
  std::function<bool()> watched;  // previews cost time: only those that somebody sees are made
  std::function<void(const std::string& png)> on_preview;
  std::function<void(const std::string&)> on_note;
  std::function<void(int64_t steps)> on_resumed = {};  // an earlier run has finished so many
  const CancelFlag* cancel = nullptr;
};

// Picture `index` of the job. Throws as Pipeline::Generate.
Picture DrawPicture(const Pipeline& pipeline, const Request& job, int64_t index, ProgressMeter& meter,
                    const DrawingHooks& hooks);

// The text that goes into its file.
PictureText TextOf(const Pipeline& pipeline, const Picture& picture, const Request& job,
                   const std::string& model_name, draw::SourceMark mark);

// Adds a finished picture to what is known of its job.
void AddPicture(const Picture& picture, const Request& drawn, Job& job);

}  // namespace qwen_image::jobs
