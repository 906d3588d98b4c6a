// The names of a transformer block's checkpoints, as src/model/transformer.cc taps them. Internal to
// hints*.cc.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "parity/hint_search.h"

namespace qwen_image {

// "transformer/step000/transformer_blocks.7:img_query_rope"
struct BlockName {
  std::string pass;    // "transformer/step000/"
  std::string prefix;  // "transformer/step000/transformer_blocks.7"
  std::string rest;    // ":img_query_rope"
  int64_t index = 0;   // 7
};

std::optional<BlockName> ParseBlockName(const std::string& name);

struct StreamParts {
  const char *name, *to_out, *to_v;
  const char *norm_q, *norm_k;
};

inline constexpr std::array<StreamParts, 2> kStreams = {{
    {"txt", ".attn.to_add_out", ".attn.add_v_proj", ".attn.norm_added_q", ".attn.norm_added_k"},
    {"img", ".attn.to_out.0", ".attn.to_v", ".attn.norm_q", ".attn.norm_k"},
}};

bool TestAttentionHints(HintSearch& search, const BlockName& block);  // RoPE and attention

}  // namespace qwen_image
