#include "server/http/target.h"

#include <algorithm>

namespace qwen_image::http {
namespace {

constexpr size_t kMaxFields = 32;

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// As forms are encoded: '+' is a space.
std::optional<std::string> Decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      decoded += ' ';
    } else if (text[i] != '%') {
      decoded += text[i];
    } else {
      const int high = i + 2 < text.size() ? HexDigit(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? HexDigit(text[i + 2]) : -1;
      if (high < 0 || low < 0) return std::nullopt;
      decoded += static_cast<char>(16 * high + low);
      i += 2;
    }
  }
  return decoded;
}

}  // namespace

std::optional<Target> ParseTarget(std::string_view text) {
  if (!text.starts_with('/')) return std::nullopt;
  const size_t question = std::min(text.find('?'), text.size());
  Target target{.path = std::string(text.substr(0, question)), .query = {}};
  std::string_view rest = text.substr(std::min(question + 1, text.size()));
  for (size_t fields = 0; !rest.empty(); ++fields) {
    if (fields == kMaxFields) return std::nullopt;
    const size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view field = rest.substr(0, end);
    const size_t equals = std::min(field.find('='), field.size());
    const auto name = Decoded(field.substr(0, equals));
    const auto value = Decoded(field.substr(std::min(equals + 1, field.size())));
    if (!name || !value) return std::nullopt;
    if (!name->empty()) target.query.emplace(*name, *value);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return target;
}

}  // namespace qwen_image::http
