// A run that keeps its state in a file while it goes on, if it was asked to; else nothing of this happens.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "core/tensor.h"
#include "draw/run.h"
#include "draw/step_cache.h"
#include "keep/identity.h"
#include "keep/run_state.h"

namespace qwen_image::draw {

class ResumableRun {
 public:
  using Note = std::function<void(const std::string&)>;
  ResumableRun(const Run& run, keep::Identities& identities, const Schedule& schedule, Note note);

  std::filesystem::path path() const { return file_ ? file_->path() : std::filesystem::path(); }

  // The number of steps that an earlier run finished; puts their results in place. A damaged file is noted,
  // and counts as none.
  int64_t Load(Tensor& latents, StepCache& step_cache) const;
  // A disk that is full must not end a run of hours: it is noted, and the state is not kept any more.
  void Save(int64_t steps_done, const Tensor& latents, const StepCache& step_cache);

 private:
  int64_t steps_;
  Note note_;
  std::optional<keep::RunStateFile> file_;
};

}  // namespace qwen_image::draw
