// Bytes as text (RFC 4648, the standard alphabet with padding).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace qwen_image {

std::string EncodeBase64(std::string_view bytes);

// Strict: nothing but digits, with its padding, as EncodeBase64 writes it; none for anything else. Line
// breaks and the alphabet of URLs are something else.
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace qwen_image
