// The settings of a picture, as they stand in its PNG metadata and in --json output.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "draw/record.h"
#include "files/json.h"
#include "generate_options.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::cli {

// Where a record holds Pipeline::RunId, if the run could be resumed.
inline constexpr const char* kRunKey = "run";

// DrawnRecord, and the files that the options name.
Json PictureRecord(const Picture& picture, const GenerateRequest& request, const GenerateOptions& options,
                   const std::string& model_name, const Pipeline& pipeline);

// The settings of a picture that was drawn as a part of a resumable batch, if it is this run's; else null.
Json RecordOfDrawn(const std::filesystem::path& picture, const std::string& run_id);

// Fills in from the picture's metadata what the user did not say himself. Throws Error kBadInput.
void FillFromPicture(const std::filesystem::path& picture, GenerateOptions& options);

}  // namespace qwen_image::cli
