// From a prompt to the text encoder's input: the official template around it, and its token ids.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "model/encoded_prompt.h"
#include "model/tokenizer.h"

namespace qwen_image::qwen_image_21 {

// prompt_template_t2i and prompt_template_ti2i of diffusers' pipelines/qwenimage21/pipeline_qwenimage21.py.
// Pictures come between the user's role and the prompt, each after its number: "<image1>". Nothing is ever
// cut off.
inline constexpr std::string_view kSystemMessage =
    "<|im_start|>system\nComprehend and analyze the provided prompt.<|im_end|>\n";
inline constexpr std::string_view kUserRole = "<|im_start|>user\n";
inline constexpr std::string_view kPromptSuffix = "<|im_end|>\n<|im_start|>assistant\n";
inline constexpr std::string_view kImageToken = "<|image_pad|>";  // stands for pictures

// How many ids the system's message has, whose hidden states are thrown away.
int64_t DroppedTokens(const Tokenizer& tokenizer);

// `image_tokens` says how many tokens each picture takes (ImageGrid::tokens); empty: text alone. An empty
// prompt is a space, as in the pipeline. Throws Error kUsage if the prompt is not valid UTF-8 or brings image
// tokens of its own (kParse); kBadInput if the tokenizer has no image token.
EncodedPrompt EncodePrompt(const Tokenizer& tokenizer, std::string_view prompt,
                           std::span<const int64_t> image_tokens = {},
                           Tokenizer::SpecialTokens special = Tokenizer::SpecialTokens::kLiteral);

}  // namespace qwen_image::qwen_image_21
