// JointLayout: where text and pictures stand in the one sequence of a denoiser (OneStreamNames). It is read
// from the reference's own tensors. Internal to this folder.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "parity/hints/search.h"

namespace qwen_image::hints {

struct JointLayout {
  // Tokens that follow each other: of the text, or of one picture.
  struct Segment {
    int64_t begin = 0, end = 0;
    bool is_text = false;
  };
  std::vector<Segment> segments;  // one behind the other; the last is the picture that is drawn

  int64_t prefix() const { return segments.back().begin; }
  int64_t tokens() const { return segments.back().end; }
  std::vector<size_t> SegmentOfTokens() const;
};

// How many of a pass's tokens stand before the picture that is drawn. Nothing if that is not known.
std::optional<int64_t> PrefixOf(const HintSearch& search, int64_t tokens);

// The layout of the pass that the checkpoint [1, tokens, …] belongs to. Nothing for families of several
// streams, or if the reference does not tell.
std::optional<JointLayout> ReadJointLayout(const HintSearch& search);

}  // namespace qwen_image::hints
