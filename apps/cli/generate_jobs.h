// From what the user typed to the pictures to draw.
#pragma once

#include <filesystem>
#include <vector>

#include "options.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image {

struct Job {
  GenerateRequest request;
  std::filesystem::path output;
};

// One request from the options, with the prompt and without --count. Throws Error.
GenerateRequest MakeRequest(const GenerateOptions& options);

// Every picture of a run, with its file; checked as far as that is possible before a model is loaded. Throws
// Error.
std::vector<Job> PlanJobs(const GenerateOptions& options);

}  // namespace qwen_image
