// What somebody may have meant who wrote a name that is not there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qwen_image::catalogue {

// Those of `candidates` that the fewest insertions, deletions and replacements of characters make equal to
// `text` (case does not count), best first; at most `at_most` of them.
std::vector<std::string> Nearest(std::string_view text, const std::vector<std::string>& candidates,
                                 size_t at_most);

}  // namespace qwen_image::catalogue
