#include "files/text.h"

#include <fmt/format.h>

#include <cstdint>

namespace qwen_image {
namespace {

// The length of the well-formed UTF-8 sequence at the start of `text`, 0 if there is none.
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and values above U+10FFFF differ from good ones in the second byte only.
  if (first == 0xe0 && byte(1) < 0xa0) return 0;
  if (first == 0xed && byte(1) > 0x9f) return 0;
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) > 0x8f) return 0;
  return length;
}

}  // namespace

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string Printable(std::string_view text, size_t max_bytes) {
  std::string result;
  while (!text.empty()) {
    if (result.size() >= max_bytes) return result + "…";
    const size_t length = SequenceLength(text);
    const uint8_t first = static_cast<uint8_t>(text[0]);
    // U+0080…U+009F (0xc2 0x80…0x9f) are control characters too; some terminals obey them.
    const bool control = first < 0x20 || first == 0x7f ||
                         (first == 0xc2 && length == 2 && static_cast<uint8_t>(text[1]) < 0xa0);
    const size_t taken = length == 0 ? 1 : length;
    for (size_t i = 0; i < taken; ++i) {
      if (length == 0 || control) {
        result += fmt::format("\\x{:02x}", static_cast<uint8_t>(text[i]));
      } else {
        result += text[i];
      }
    }
    text.remove_prefix(taken);
  }
  return result;
}

std::string Quoted(std::string_view text) { return '"' + Printable(text) + '"'; }

}  // namespace qwen_image
