// The settings of a picture, as they stand in its PNG metadata and in --json output.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "files/json.h"
#include "options.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image {

// Where a record holds Pipeline::RunId, if the run could be resumed.
inline constexpr const char* kRunKey = "run";

// Everything that is needed to draw the picture again.
Json PictureRecord(const Picture& picture, const GenerateOptions& options, const std::string& model_name,
                   const std::vector<AppliedLora>& loras);

// One line. Bytes that are no UTF-8, as names of files may have, become U+FFFD.
std::string RecordText(const Json& record);

std::map<std::string, std::string> PngText(const Json& record);

// The settings of a picture that was drawn as a part of a resumable batch, if it is this run's; else null.
Json RecordOfDrawn(const std::filesystem::path& picture, const std::string& run_id);

// Fills in from the picture's metadata what the user did not say himself. Throws Error kBadInput.
void FillFromPicture(const std::filesystem::path& picture, GenerateOptions& options);

}  // namespace qwen_image
