// The one sequence that the transformer sees: the prompt's tokens, in which the latents of each reference
// picture stand where the prompt shows it, and behind them the latents of the picture that is drawn. All but
// that picture is the prefix: nothing in it depends on the step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/token_grid.h"
#include "ops/interface.h"

namespace qwen_image::qwen_image_21 {

inline constexpr int64_t kPositions = 8192;  // that the official model has tables for, from 0

struct JointSequence {
  // Tokens of the prefix that follow each other: of the text, or of one reference.
  struct Segment {
    int64_t begin = 0, end = 0;  // in the joint sequence
    int64_t first_embed = 0;     // of the text: its row of the prompt's embeddings
    bool is_text = false;
    TokenGrid grid = {};  // of a reference

    int64_t tokens() const { return end - begin; }
  };
  std::vector<Segment> segments;  // one behind the other
  TokenGrid target;

  int64_t prefix() const { return segments.empty() ? 0 : segments.back().end; }
  int64_t tokens() const { return prefix() + target.tokens(); }

  // Text is causal; a picture sees all that is before it and itself; the target sees everything.
  std::vector<AttentionSpan> Spans() const;
};

// `ids`: of the prompt's embeddings; empty where they are not known, which will do without references. Each
// id that is `image_token` stands for 2 × 2 tokens of a reference. Throws Error kUsage if ids and references
// do not fit.
JointSequence LayOut(int64_t embeds, std::span<const int64_t> ids, int64_t image_token,
                     std::span<const TokenGrid> references, TokenGrid target);

// Throws Error kUsage if the official model has no position `last`, where the target stands.
void CheckPosition(int64_t last);

// The sequence's positions on the axes frame, height and width. Text advances on all three. A picture stays
// on one frame, its rows and columns are counted from its centre, and what follows goes on behind its longer
// side.
struct Position {
  int64_t frame = 0, height = 0, width = 0;
};
// Throws Error kUsage where the official model's tables end.
std::vector<Position> PositionsOf(const JointSequence& sequence);

}  // namespace qwen_image::qwen_image_21
