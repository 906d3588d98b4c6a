#include "files/numbers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <locale>
#include <sstream>

#include "core/fail.h"
#include "files/text.h"

namespace qwen_image {

std::optional<uint64_t> ParseWhole(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> ParseNumber(std::string_view text) {
  if (text.find_first_of("-.0123456789") != 0) return std::nullopt;  // no blanks before it
  std::istringstream stream{std::string(text)};
  stream.imbue(std::locale::classic());  // std::from_chars would do, but not every library has it for floats
  double value = 0;
  stream >> value;
  if (stream.fail() || stream.peek() != EOF || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::pair<int64_t, int64_t> ParseSize(std::string_view text) {
  const size_t cross = text.find_first_of("xX");
  const auto side = [](std::string_view digits) {
    const uint64_t value = ParseWhole(digits).value_or(UINT64_MAX);
    return static_cast<int64_t>(std::min<uint64_t>(value, kHugeSide + 1));
  };
  const int64_t width = side(text.substr(0, cross));
  const int64_t height = cross == text.npos ? kHugeSide + 1 : side(text.substr(cross + 1));
  if (width > kHugeSide || height > kHugeSide)
    Fail(ErrorKind::kUsage, "{} is not a size; write WIDTHxHEIGHT, for example 1024x768", Quoted(text));
  return {width, height};
}

}  // namespace qwen_image
