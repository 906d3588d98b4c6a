// The settings of a picture, as they stand in its metadata.
#pragma once

#include <string>
#include <vector>

#include "draw/opened_model.h"
#include "files/json.h"
#include "files/picture_file.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::draw {

// The keyword of the record among the texts of a picture.
inline constexpr const char* kRecordKey = "qwen-image";

// Everything that is needed to draw the picture again, but for the pictures and the noise that it was made
// from: only the caller knows what they are called ("input_images", "init_image", "mask", "latents").
Json DrawnRecord(const Picture& picture, const GenerateRequest& request, const std::string& model_name,
                 const OpenedModel& model);

// The record for callers who hold pictures and not files.
Json LibraryRecord(const Picture& picture, const GenerateRequest& request, const OpenedModel& model);

// Gives the pictures and the noise of `request` names in the record: `names`, `names`-1, `names`-mask ….
// For sources that have no file names.
void NameSources(const GenerateRequest& request, const std::string& names, Json& record);

// One line. Bytes that are not UTF-8 become U+FFFD: names of files may have them.
std::string RecordText(const Json& record);

// Whether the file says, as IPTC defines it, that a trained model made the picture.
enum class SourceMark { kLeftOut, kWritten };

// What stands beside the pixels.
PictureText FileText(const Json& record, SourceMark mark = SourceMark::kWritten);

}  // namespace qwen_image::draw
