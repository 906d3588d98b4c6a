#include "model/prompt.h"

#include <algorithm>
#include <string>

#include "core/fail.h"
#include "model/text_split.h"

namespace qwen_image {
namespace {

using SpecialTokens = Tokenizer::SpecialTokens;

void Append(const std::vector<int64_t>& more, std::vector<int64_t>& ids) {
  ids.insert(ids.end(), more.begin(), more.end());
}

// The ids of prefix + prompt + suffix, where only the template's own control tokens are control tokens.
std::vector<int64_t> EncodeLiteral(const Tokenizer& tokenizer, std::string_view prompt,
                                   const PromptTemplate& format) {
  // The text between two control tokens has to be encoded in one go: words and NFC reach from the "user\n" of
  // the template into a prompt that starts with white space or a combining mark.
  constexpr std::string_view kStart = "<|im_start|>";
  const size_t role = format.prefix.rfind(kStart) + kStart.size();
  std::vector<int64_t> ids = tokenizer.Encode(format.prefix.substr(0, role), SpecialTokens::kParse);
  if (ids.empty() || ids.back() != tokenizer.TokenId(kStart)) {
    Fail(ErrorKind::kInternal, "the prompt's template does not end in a control token and a role");
  }
  Append(tokenizer.Encode(std::string(format.prefix.substr(role)).append(prompt), SpecialTokens::kLiteral),
         ids);
  Append(tokenizer.Encode(format.suffix, SpecialTokens::kParse), ids);
  return ids;
}

}  // namespace

EncodedPrompt EncodePrompt(const Tokenizer& tokenizer, std::string_view prompt, SpecialTokens special) {
  CheckUtf8(prompt);  // here, so that the offset in the message is one in the prompt
  const PromptTemplate& format = kTextToImageTemplate;
  EncodedPrompt result;
  result.dropped = format.dropped_tokens;
  if (special == SpecialTokens::kParse) {
    const std::string text = std::string(format.prefix).append(prompt).append(format.suffix);
    result.ids = tokenizer.Encode(text, SpecialTokens::kParse);
  } else {
    result.ids = EncodeLiteral(tokenizer, prompt, format);
  }

  const auto total = static_cast<int64_t>(result.ids.size());
  const auto suffix = static_cast<int64_t>(tokenizer.Encode(format.suffix, SpecialTokens::kParse).size());
  if (total <= result.dropped) {
    Fail(ErrorKind::kUsage, "the prompt has no tokens after the first {}, which belong to the template",
         result.dropped);
  }
  result.prompt_tokens = std::max<int64_t>(0, total - result.dropped - suffix);
  result.truncated = total > kTokenizerMaxLength + result.dropped;
  result.ids.resize(static_cast<size_t>(std::min(total, kTokenizerMaxLength + result.dropped)));
  return result;
}

}  // namespace qwen_image
