// The character classes of the official tokenizer, which has Unicode 16 built in: utf8proc's, and what it
// does not know yet (Debian 12 brings Unicode 15).
#pragma once

#include <cstdint>

namespace qwen_image {

enum class CharacterClass : uint8_t { kLetter, kNumber, kNewline, kSpace, kOther };

CharacterClass ClassOf(uint32_t code_point);

// The official NFC has older data than utf8proc (Unicode 9): these characters came later, and it leaves them
// alone.
bool IsNewerThanOfficialNfc(uint32_t code_point);

}  // namespace qwen_image
