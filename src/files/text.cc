#include "files/text.h"

#include <fmt/format.h>

#include <algorithm>
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

// Whether a terminal would obey the character at the start of `text` instead of showing it.
bool IsObeyed(std::string_view text, size_t length) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (byte(0) < 0x20 || byte(0) == 0x7f) return true;
  if (length == 2) return byte(0) == 0xc2 && byte(1) < 0xa0;  // U+0080…U+009F are control characters too
  if (length != 3 || byte(0) != 0xe2) return false;
  // What turns the direction of writing, so that a text reads as another: U+202A…U+202E, U+2066…U+2069.
  return (byte(1) == 0x80 && byte(2) >= 0xaa && byte(2) <= 0xae) ||
         (byte(1) == 0x81 && byte(2) >= 0xa6 && byte(2) <= 0xa9);
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
    const bool control = length > 0 && IsObeyed(text, length);
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

std::string PrintableLines(std::string_view text) {
  std::string result;
  for (;;) {
    const size_t end = std::min(text.find('\n'), text.size());
    result += Printable(text.substr(0, end), text.size());
    if (end == text.size()) return result;
    result += '\n';
    text.remove_prefix(end + 1);
  }
}

std::string Quoted(std::string_view text) { return '"' + Printable(text) + '"'; }

}  // namespace qwen_image
