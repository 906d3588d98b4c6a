// '*' matches any text, everything else itself.
#pragma once

#include <string_view>

namespace qwen_image {

bool MatchesGlob(std::string_view pattern, std::string_view text);

}  // namespace qwen_image
