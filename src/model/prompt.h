// From a prompt to the text encoder's input: the official template around it, and its token ids.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/tokenizer.h"

namespace qwen_image {

// The figures and the template of diffusers' pipelines/qwenimage/pipeline_qwenimage.py.
inline constexpr int64_t kTokenizerMaxLength = 1024;  // tokenizer_max_length: ids kept after the dropped ones
inline constexpr int64_t kDefaultMaxSequenceLength = 512;  // max_sequence_length: embeddings kept, later on

struct PromptTemplate {
  std::string_view prefix, suffix;
  int64_t dropped_tokens;  // leading ids whose hidden states are thrown away
};

// prompt_template_encode and prompt_template_encode_start_idx.
inline constexpr PromptTemplate kTextToImageTemplate = {
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, "
    "spatial "
    "relationships of the objects and background:<|im_end|>\n<|im_start|>user\n",
    "<|im_end|>\n<|im_start|>assistant\n", 34};

struct EncodedPrompt {
  std::vector<int64_t> ids;
  int64_t dropped = 0;        // leading ids whose hidden states are thrown away
  int64_t prompt_tokens = 0;  // the prompt's own tokens, before truncation and without the template's
  bool truncated = false;     // ids were cut off on the right, as the official tokenizer call does
};

// Throws Error kUsage if the prompt is not valid UTF-8.
EncodedPrompt EncodePrompt(const Tokenizer& tokenizer, std::string_view prompt,
                           Tokenizer::SpecialTokens special = Tokenizer::SpecialTokens::kLiteral);

}  // namespace qwen_image
