#include "draw/resume.h"

#include <fmt/format.h>

#include <utility>

#include "core/fail.h"
#include "draw/run_identity.h"

namespace qwen_image::draw {

ResumableRun::ResumableRun(const Run& run, keep::Identities& identities, const Schedule& schedule, Note note)
    : steps_(run.settings.steps_run()), note_(std::move(note)) {
  if (!run.request.resume_folder.empty())
    file_.emplace(run.request.resume_folder, RunIdentity(identities, run.request, run.settings, schedule),
                  run.request.prompt);
}

int64_t ResumableRun::Load(Tensor& latents, StepCache& step_cache) const {
  if (!file_) return 0;
  try {
    const Shape shape = latents.shape();
    std::optional<keep::RunState> state = file_->Load(shape, steps_, step_cache.StateShapes(shape));
    if (!state) return 0;
    step_cache.Restore({std::move(state->more.metadata), std::move(state->more.tensors)});
    latents = std::move(state->latents);
    return state->steps_done;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBadInput) throw;
    if (note_) note_(fmt::format("{}; the run starts from the beginning", error.message()));
    return 0;
  }
}

void ResumableRun::Save(int64_t steps_done, const Tensor& latents, const StepCache& step_cache) {
  if (!file_) return;
  try {
    StepCache::State cache = step_cache.Save();
    file_->Save({.steps_done = steps_done,
                 .latents = latents.Clone(),
                 .more = {.metadata = std::move(cache.numbers), .tensors = std::move(cache.tensors)}});
  } catch (const Error& error) {
    file_.reset();
    if (note_) note_(fmt::format("the run's state is not kept any more: {}", error.message()));
  }
}

}  // namespace qwen_image::draw
