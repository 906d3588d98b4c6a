// From what the user typed to the pictures to draw.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "generate_options.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::cli {

struct Job {
  std::string prompt;
  uint64_t seed = 0;
  std::filesystem::path output;
};

// Every picture of a run: what they share, and what tells them apart.
struct JobPlan {
  GenerateRequest shared;
  std::vector<Job> jobs;                 // none: a shard that no picture falls to
  bool keeps_drawn = false;              // pictures that an earlier run finished are not drawn again
  std::vector<std::string> transparent;  // the files among its pictures that are, in part

  GenerateRequest RequestOf(const Job& job) const;
};

// What the options say, with the prompt and without --count; reads the pictures that they name, as the files
// have them. `note` hears what was done with them. `transparent` gets those that are transparent in part:
// the model decides what becomes of that. Throws Error.
using Note = std::function<void(const std::string&)>;
GenerateRequest MakeRequest(const GenerateOptions& options, const Note& note,
                            std::vector<std::string>* transparent = nullptr);

// Checked as far as that is possible before a model is loaded. Throws Error.
JobPlan PlanJobs(const GenerateOptions& options, const Note& note);
// Tells what a model without alpha does with transparent pictures.
void NoteTransparent(const JobPlan& plan, const Pipeline& pipeline, const Note& note);

}  // namespace qwen_image::cli
