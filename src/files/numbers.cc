#include "files/numbers.h"

#include <charconv>

#include "core/fail.h"
#include "files/text.h"

namespace qwen_image {

std::optional<uint64_t> ParseWhole(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::pair<int64_t, int64_t> ParseSize(std::string_view text) {
  const size_t cross = text.find_first_of("xX");
  const auto width = ParseWhole(text.substr(0, cross));
  const auto height = cross == text.npos ? std::nullopt : ParseWhole(text.substr(cross + 1));
  if (!width || !height || *width > kHugeSide || *height > kHugeSide) {
    Fail(ErrorKind::kUsage, "{} is not a size; write WIDTHxHEIGHT, for example 1024x768", Quoted(text));
  }
  return {static_cast<int64_t>(*width), static_cast<int64_t>(*height)};
}

}  // namespace qwen_image
