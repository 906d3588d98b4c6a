// From a prompt to the text encoder's input: the official template around it, and its token ids.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/encoded_prompt.h"
#include "model/tokenizer.h"

namespace qwen_image {

// The figures and the template of diffusers' pipelines/qwenimage/pipeline_qwenimage.py.
inline constexpr int64_t kTokenizerMaxLength = 1024;  // tokenizer_max_length: ids kept after the dropped ones

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

// The same of pipeline_qwenimage_edit.py and pipeline_qwenimage_edit_plus.py, which begin alike. Pictures
// come between the prefix and the prompt; nothing is ever cut off.
inline constexpr PromptTemplate kEditTemplate = {
    "<|im_start|>system\nDescribe the key features of the input image (color, shape, size, texture, objects, "
    "background), then explain how the user's text instruction should alter or modify the image. Generate a "
    "new image that meets the user's requirements while maintaining consistency with the original input "
    "where appropriate.<|im_end|>\n<|im_start|>user\n",
    "<|im_end|>\n<|im_start|>assistant\n", 64};
inline constexpr std::string_view kImageToken = "<|image_pad|>";  // stands for pictures
enum class EditTemplate {
  kEdit,      // one picture: Qwen-Image-Edit
  kEditPlus,  // "Picture 1: " before the first, and so on: Edit-2509, Edit-2511
};

// Throws Error kUsage if the prompt is not valid UTF-8.
EncodedPrompt EncodePrompt(const Tokenizer& tokenizer, std::string_view prompt,
                           Tokenizer::SpecialTokens special = Tokenizer::SpecialTokens::kLiteral);

// The prompt of an edit: `image_tokens` says how many tokens each picture takes (ImageGrid::tokens). Throws
// Error kUsage if the prompt is not valid UTF-8, brings image tokens of its own (kParse), or the template is
// for another number of pictures; kBadInput if the tokenizer has no image token.
EncodedPrompt EncodeEditPrompt(const Tokenizer& tokenizer, std::string_view prompt, EditTemplate kind,
                               std::span<const int64_t> image_tokens,
                               Tokenizer::SpecialTokens special = Tokenizer::SpecialTokens::kLiteral);

}  // namespace qwen_image
