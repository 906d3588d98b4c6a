// What happens to a text before byte-pair encoding: UTF-8 check, NFC, and the split into words by Qwen2's
// regular expression. All three give what the official `tokenizers` library gives, code point by code point.
//
// The expression is a scanner here, not a call to a regex library: PCRE2 follows the Unicode version of the
// machine it is installed on (Debian 12: 14), the official tokenizer has Unicode 16 built in (see unicode.h).
// It also makes the time linear, however long a run of spaces is.
#pragma once

#include <string>
#include <string_view>

namespace qwen_image {

// PRETOKENIZE_REGEX of transformers/models/qwen2/tokenization_qwen2.py; NextWord() implements exactly this.
inline constexpr std::string_view kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";

// Throws Error kUsage with the offset of the first byte that is not part of valid UTF-8.
void CheckUtf8(std::string_view text);

// Every byte sequence that is no character becomes one U+FFFD, as in Rust and in Unicode's recommendation.
std::string ReplaceInvalidUtf8(std::string_view bytes);

// `text` must be valid UTF-8.
std::string NormalizeNfc(std::string_view text);

// The length in bytes of the first word of `text`, which must be valid UTF-8 and not empty. The words of a
// text cover it without gaps.
size_t NextWord(std::string_view text);

}  // namespace qwen_image
