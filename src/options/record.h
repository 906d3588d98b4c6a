// The settings in the record of a picture (PNG metadata, --json), and their way back.
#pragma once

#include <set>
#include <string>

#include "files/json.h"
#include "options/field.h"

namespace qwen_image::options {

using NameSet = std::set<std::string, std::less<>>;

// `drawn`: the request with every default filled in.
void WriteRecord(const GenerateRequest& drawn, Json& record);

// Reads the settings that are not among `given`, and adds their names. A record with "size" says there what
// was asked for; its width and height are those of the picture. Throws Error kBadInput; `where` names the
// record.
void ReadRecord(const Json& record, const std::string& where, NameSet& given, GenerateRequest& request);

// "as the input", or WIDTHxHEIGHT.
inline constexpr const char* kSizeOfInput = "as the input";

}  // namespace qwen_image::options
