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

// Everything that is needed to draw the picture again.
Json PictureRecord(const Picture& picture, const GenerateOptions& options, const std::string& model_name,
                   const std::vector<AppliedLora>& loras);

// One line. Bytes that are no UTF-8, as names of files may have, become U+FFFD.
std::string RecordText(const Json& record);

std::map<std::string, std::string> PngText(const Json& record);

// Fills in from the picture's metadata what the user did not say himself. Throws Error kBadInput.
void FillFromPicture(const std::filesystem::path& picture, GenerateOptions& options);

}  // namespace qwen_image
