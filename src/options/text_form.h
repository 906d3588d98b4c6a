// Settings as text: how the command line and C write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "options/field.h"

namespace qwen_image::options {

// `called` is what the user calls the setting, for messages. Throws Error kUsage for a text that is no such
// value, and for data, which has no such form. Which values are possible the pipeline knows.
void SetFromText(const Field& field, std::string_view text, std::string_view called,
                 GenerateRequest& request);

// "a whole number", "auto, on or off": for messages.
std::string KindOf(const Field& field);

std::vector<double> ParseNumbers(std::string_view text);   // "1,0.9,0.5"; throws Error kUsage
std::string NumbersText(const std::vector<double>& list);  // the same the other way
Margins ParseMargins(std::string_view text);               // "0,64,0,64": left, top, right, bottom
std::string MarginsText(const Margins& margins);
bool IsRandomSeed(std::string_view text);  // "random", "-1"
uint64_t ParseSeed(std::string_view text);

}  // namespace qwen_image::options
