// The state of an unfinished run, in a file: latents after the last finished step, and what else the next
// steps depend on. A run that was killed goes on from there to the identical picture.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "core/tensor.h"
#include "pipeline/stages.h"
#include "pipeline/step_cache.h"

namespace qwen_image {

// Everything that decides the latents of a run, as JSON: engine, weights, token ids, settings, noise levels.
// (Not the VAE: who changes that gets the picture that the new one makes of the same latents.)
std::string RunIdentity(const Pipeline::Impl& model, const GenerateRequest& request, const Settings& settings,
                        const Schedule& schedule);

class ResumeFile {
 public:
  // The file of the run with this identity. Makes the folder. Throws Error kCannotWrite if nothing can be
  // written there.
  ResumeFile(const std::filesystem::path& folder, std::string identity, std::string prompt);

  const std::filesystem::path& path() const { return path_; }

  // How many steps were finished; puts their results in place: 0 and nothing if there is no file. Throws
  // Error kBadInput for a file that is damaged; nothing is changed then.
  int64_t Load(const Shape& latents_shape, int64_t steps, Tensor& latents, StepCache& step_cache) const;
  void Save(int64_t steps_done, const Tensor& latents, const StepCache& step_cache) const;

 private:
  std::filesystem::path path_;
  std::string identity_, prompt_;
};

// A run that keeps its state while it goes on, if it was asked to; else nothing of this happens.
class KeptRun {
 public:
  using Note = std::function<void(const std::string&)>;
  KeptRun(const Pipeline::Impl& model, const Run& run, const Schedule& schedule, const Note& note);

  std::filesystem::path path() const { return file_ ? file_->path() : std::filesystem::path(); }

  // The number of steps that an earlier run finished. A damaged file is noted, and counts as none.
  int64_t Load(Tensor& latents, StepCache& step_cache) const;
  // A disk that is full must not end a run of hours: it is noted, and the state is not kept any more.
  void Save(int64_t steps_done, const Tensor& latents, const StepCache& step_cache);

 private:
  int64_t steps_;
  const Note& note_;
  std::optional<ResumeFile> file_;
};

}  // namespace qwen_image
