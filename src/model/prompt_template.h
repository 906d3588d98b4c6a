// A prompt between the fixed parts of a template.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/tokenizer.h"

namespace qwen_image {

// The ids of prefix + prompt + suffix. kLiteral: only the template's own control tokens are control tokens;
// the prefix must hold one.
std::vector<int64_t> EncodeBetween(const Tokenizer& tokenizer, std::string_view prefix,
                                   std::string_view prompt, std::string_view suffix,
                                   Tokenizer::SpecialTokens special);

}  // namespace qwen_image
