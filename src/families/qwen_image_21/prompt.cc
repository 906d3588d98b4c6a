#include "families/qwen_image_21/prompt.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "core/fail.h"
#include "model/prompt_template.h"
#include "model/text_split.h"

namespace qwen_image::qwen_image_21 {
namespace {

using SpecialTokens = Tokenizer::SpecialTokens;

int64_t Count(const Tokenizer& tokenizer, std::string_view text) {
  return static_cast<int64_t>(tokenizer.Encode(text, SpecialTokens::kParse).size());
}

// What stands before the prompt, with an image token for each of a picture's.
std::string PrefixOf(std::span<const int64_t> image_tokens) {
  std::string prefix = std::string(kSystemMessage).append(kUserRole);
  for (size_t i = 0; i < image_tokens.size(); ++i) {
    prefix += fmt::format("{}<image{}><|vision_start|>", i > 0 ? " " : "", i + 1);
    for (int64_t token = 0; token < image_tokens[i]; ++token) prefix += kImageToken;
    prefix += "<|vision_end|>";
  }
  return prefix;
}

}  // namespace

int64_t DroppedTokens(const Tokenizer& tokenizer) { return Count(tokenizer, kSystemMessage); }

EncodedPrompt EncodePrompt(const Tokenizer& tokenizer, std::string_view prompt,
                           std::span<const int64_t> image_tokens, SpecialTokens special) {
  CheckUtf8(prompt);  // here, so that the offset in the message is one in the prompt
  if (prompt.empty()) prompt = " ";
  const std::string prefix = PrefixOf(image_tokens);
  EncodedPrompt result{.ids = EncodeBetween(tokenizer, prefix, prompt, kPromptSuffix, special),
                       .dropped = DroppedTokens(tokenizer)};
  if (!image_tokens.empty() || special == SpecialTokens::kParse) {
    const int64_t image_token = tokenizer.TokenId(kImageToken);
    const int64_t expected = std::accumulate(image_tokens.begin(), image_tokens.end(), int64_t{0});
    if (std::count(result.ids.begin(), result.ids.end(), image_token) != expected) {
      Fail(ErrorKind::kUsage, "the prompt holds {}, which stands for a picture that was not given",
           kImageToken);
    }
    if (!image_tokens.empty()) result.image_token = image_token;
  }
  result.prompt_tokens = std::max<int64_t>(0, static_cast<int64_t>(result.ids.size()) -
                                                  Count(tokenizer, prefix) - Count(tokenizer, kPromptSuffix));
  return result;
}

}  // namespace qwen_image::qwen_image_21
