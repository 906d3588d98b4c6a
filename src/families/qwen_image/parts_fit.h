// Do the parts of a model belong together?
#pragma once

#include <filesystem>

#include "families/qwen_image/text_encoder.h"
#include "families/qwen_image/transformer.h"
#include "families/qwen_image/vae.h"

namespace qwen_image {

// Parts of different models put together would only fail deep inside a product of matrices. Throws Error
// kBadInput.
void CheckPartsFit(const TextEncoderConfig& text_encoder, const TransformerConfig& transformer,
                   const VaeConfig& vae, const std::filesystem::path& root);

}  // namespace qwen_image
