// A prompt as the token ids that a text encoder reads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace qwen_image {

struct EncodedPrompt {
  std::vector<int64_t> ids;
  int64_t dropped = 0;        // leading ids whose hidden states are thrown away
  int64_t prompt_tokens = 0;  // the prompt's own tokens, before truncation and without the template's
  bool truncated = false;     // ids were cut off on the right, as the official tokenizer call does
  int64_t image_token = -1;   // of edits: the id that stands for pictures
  int64_t most_embeds = std::numeric_limits<int64_t>::max();  // hidden states kept after the dropped ones

  int64_t own_ids() const { return static_cast<int64_t>(ids.size()) - dropped; }
  int64_t embeds() const { return std::min(own_ids(), most_embeds); }
  std::vector<int64_t> ids_of_embeds() const {
    return {ids.begin() + dropped, ids.begin() + dropped + embeds()};
  }
};

}  // namespace qwen_image
