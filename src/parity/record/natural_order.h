// Natural order compares runs of digits as numbers: step2 comes before step10.
#pragma once

#include <string_view>

namespace qwen_image::record {

bool NaturallyBefore(std::string_view a, std::string_view b);

}  // namespace qwen_image::record
