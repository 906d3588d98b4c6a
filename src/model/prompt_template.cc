#include "model/prompt_template.h"

#include <string>

#include "core/fail.h"

namespace qwen_image {
namespace {

using SpecialTokens = Tokenizer::SpecialTokens;

void Append(const std::vector<int64_t>& more, std::vector<int64_t>& ids) {
  ids.insert(ids.end(), more.begin(), more.end());
}

std::vector<int64_t> EncodeLiteral(const Tokenizer& tokenizer, std::string_view prefix,
                                   std::string_view prompt, std::string_view suffix) {
  // The text between two control tokens has to be encoded in one go: words and NFC reach from the "user\n" of
  // the template into a prompt that starts with white space or a combining mark.
  constexpr std::string_view kBegin = "<|", kEnd = "|>";
  const size_t last = prefix.rfind(kBegin);
  const size_t end = prefix.find(kEnd, last);
  if (last == prefix.npos || end == prefix.npos)
    Fail(ErrorKind::kInternal, "the prompt's template has no control token");
  const size_t text = end + kEnd.size();
  std::vector<int64_t> ids = tokenizer.Encode(prefix.substr(0, text), SpecialTokens::kParse);
  if (ids.empty() || ids.back() != tokenizer.TokenId(prefix.substr(last, text - last))) {
    Fail(ErrorKind::kInternal, "the prompt's template does not begin with control tokens of this tokenizer");
  }
  Append(tokenizer.Encode(std::string(prefix.substr(text)).append(prompt), SpecialTokens::kLiteral), ids);
  Append(tokenizer.Encode(suffix, SpecialTokens::kParse), ids);
  return ids;
}

}  // namespace

std::vector<int64_t> EncodeBetween(const Tokenizer& tokenizer, std::string_view prefix,
                                   std::string_view prompt, std::string_view suffix, SpecialTokens special) {
  if (special == SpecialTokens::kLiteral) return EncodeLiteral(tokenizer, prefix, prompt, suffix);
  return tokenizer.Encode(std::string(prefix).append(prompt).append(suffix), SpecialTokens::kParse);
}

}  // namespace qwen_image
