// Numbers as users write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace qwen_image {

// Digits and nothing else, up to 2^64 - 1.
std::optional<uint64_t> ParseWhole(std::string_view text);
// A finite decimal number and nothing else, whatever the locale is.
std::optional<double> ParseNumber(std::string_view text);

inline constexpr int64_t kHugeSide = 1 << 30;  // more than any picture has pixels on a side
// "640x480" → width, height. Throws Error kUsage.
std::pair<int64_t, int64_t> ParseSize(std::string_view text);

}  // namespace qwen_image
