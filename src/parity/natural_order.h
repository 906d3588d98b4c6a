// Natural order of names: runs of digits compare as numbers, so that step2 comes before step10.
#pragma once

#include <string_view>

namespace qwen_image {

bool NaturallyBefore(std::string_view a, std::string_view b);

}  // namespace qwen_image
