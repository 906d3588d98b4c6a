// What `generate` says about a picture that it drew.
#pragma once

#include "files/json.h"
#include "generate_jobs.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::cli {

// The summary must not end up inside a picture that goes to stdout.
bool IsStandardOutput(const std::filesystem::path& output);

void PrintSummary(const Job& job, const Picture& picture, const Pipeline& pipeline);

struct StartSeconds {
  double load = 0;                            // opening the model
  std::optional<double> start_to_first_step;  // from the start of the program; of its first picture only
};
// `record`: the settings, see PictureRecord.
void PrintJson(const Job& job, const Picture& picture, Json record, const StartSeconds& start,
               const Pipeline& pipeline);

}  // namespace qwen_image::cli
