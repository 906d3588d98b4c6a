// Text from untrusted files: checked, and made fit for a one-line message.
#pragma once

#include <string>
#include <string_view>

namespace qwen_image {

bool IsUtf8(std::string_view text);

// Control characters, also those that turn the direction of writing, and invalid bytes become \xNN, and what
// exceeds `max_bytes` becomes "…", so that a hostile name cannot break lines, send escape sequences to a
// terminal or fill a log.
std::string Printable(std::string_view text, size_t max_bytes = 200);
// The same for a message of several lines, which stay; and none is cut.
std::string PrintableLines(std::string_view text);
std::string Quoted(std::string_view text);  // Printable, in double quotes

}  // namespace qwen_image
