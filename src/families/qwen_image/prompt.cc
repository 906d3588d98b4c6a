#include "families/qwen_image/prompt.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "core/fail.h"
#include "model/prompt_template.h"
#include "model/text_split.h"

namespace qwen_image {
namespace {

using SpecialTokens = Tokenizer::SpecialTokens;

// What stands before the prompt of an edit, with an image token for each of a picture's.
std::string EditPrefix(EditTemplate kind, std::span<const int64_t> image_tokens) {
  std::string prefix(kEditTemplate.prefix);
  for (size_t i = 0; i < image_tokens.size(); ++i) {
    if (kind == EditTemplate::kEditPlus) prefix += fmt::format("Picture {}: ", i + 1);
    prefix += "<|vision_start|>";
    for (int64_t token = 0; token < image_tokens[i]; ++token) prefix += kImageToken;
    prefix += "<|vision_end|>";
  }
  return prefix;
}

}  // namespace

EncodedPrompt EncodePrompt(const Tokenizer& tokenizer, std::string_view prompt, SpecialTokens special) {
  CheckUtf8(prompt);  // here, so that the offset in the message is one in the prompt
  const PromptTemplate& format = kTextToImageTemplate;
  EncodedPrompt result;
  result.dropped = format.dropped_tokens;
  result.ids = EncodeBetween(tokenizer, format.prefix, prompt, format.suffix, special);

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

EncodedPrompt EncodeEditPrompt(const Tokenizer& tokenizer, std::string_view prompt, EditTemplate kind,
                               std::span<const int64_t> image_tokens, SpecialTokens special) {
  CheckUtf8(prompt);
  if (image_tokens.empty() || (kind == EditTemplate::kEdit && image_tokens.size() > 1)) {
    Fail(ErrorKind::kUsage, "this model edits {}, but {} pictures were given",
         kind == EditTemplate::kEdit ? "one picture at a time" : "one or more pictures", image_tokens.size());
  }
  EncodedPrompt result{.ids = {}, .dropped = kEditTemplate.dropped_tokens};
  result.image_token = tokenizer.TokenId(kImageToken);
  const std::string prefix = EditPrefix(kind, image_tokens);
  result.ids = EncodeBetween(tokenizer, prefix, prompt, kEditTemplate.suffix, special);

  const int64_t expected = std::accumulate(image_tokens.begin(), image_tokens.end(), int64_t{0});
  if (std::count(result.ids.begin(), result.ids.end(), result.image_token) != expected) {
    Fail(ErrorKind::kUsage, "the prompt holds {}, which stands for a picture that was not given",
         kImageToken);
  }
  const auto count = [&](std::string_view text) {
    return static_cast<int64_t>(tokenizer.Encode(text, SpecialTokens::kParse).size());
  };
  result.prompt_tokens = std::max<int64_t>(
      0, static_cast<int64_t>(result.ids.size()) - count(prefix) - count(kEditTemplate.suffix));
  return result;
}

}  // namespace qwen_image
