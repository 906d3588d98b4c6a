// Prompts that speak of pictures, as the language models of Qwen-VL read them: embeddings of tokens, with
// those of pictures among them, and positions on three axes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "kernels/weight_matrix.h"
#include "model/image_grid.h"

namespace qwen_image {

// Pictures in a prompt: what stands for the image tokens of its ids.
struct PromptImages {
  const Tensor& embeds;              // [tokens of all pictures, hidden_size], from the vision encoder
  std::span<const ImageGrid> grids;  // in the order of the prompt
  int64_t image_token;               // EncodedPrompt::image_token
  int64_t spatial_merge_size = 2;    // of the vision encoder
};

// get_rope_index of transformers' Qwen2.5-VL and Qwen3-VL: the positions of text and pictures on three axes
// (time, height, width), [3, tokens]. Throws Error kBadInput if the image tokens do not come in one run for
// each picture.
std::vector<int64_t> GetRopeIndex(std::span<const int64_t> input_ids, const PromptImages* images);

// [1, tokens, hidden_size]. Throws Error kBadInput, which names `file`, if a token has no row.
Tensor EmbedTokens(const WeightMatrix& embed_tokens /*[vocab_size, hidden_size]*/,
                   std::span<const int64_t> input_ids, const std::filesystem::path& file);

// The pictures' embeddings take the place of the image tokens'. Throws Error kBadInput if they do not fit.
void SpliceImages(std::span<const int64_t> input_ids, const PromptImages& images,
                  const std::filesystem::path& file, Tensor& inputs_embeds /*[1, tokens, hidden_size]*/);

}  // namespace qwen_image
