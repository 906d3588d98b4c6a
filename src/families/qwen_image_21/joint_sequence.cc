#include "families/qwen_image_21/joint_sequence.h"

#include <algorithm>

#include "core/fail.h"

namespace qwen_image::qwen_image_21 {
namespace {

constexpr int64_t kTokensPerSlot = 4;  // of a reference, for each of its tokens in the prompt
constexpr int64_t kMostBefore = 1024;  // positions below 0

}  // namespace

std::vector<AttentionSpan> JointSequence::Spans() const {
  std::vector<AttentionSpan> spans;
  for (const Segment& segment : segments) {
    spans.push_back({.first_query = segment.begin,
                     .queries = segment.tokens(),
                     .first_key = 0,
                     .keys = segment.end,
                     .causal = segment.is_text});
  }
  spans.push_back({.first_query = prefix(),
                   .queries = target.tokens(),
                   .first_key = 0,
                   .keys = tokens(),
                   .causal = false});
  return spans;
}

JointSequence LayOut(int64_t embeds, std::span<const int64_t> ids, int64_t image_token,
                     std::span<const TokenGrid> references, TokenGrid target) {
  JointSequence sequence{.segments = {}, .target = target};
  if (references.empty()) {
    if (std::find(ids.begin(), ids.end(), image_token) != ids.end())
      Fail(ErrorKind::kUsage, "the prompt has a place for a picture, but no picture was given");
    sequence.segments.push_back({.begin = 0, .end = embeds, .first_embed = 0, .is_text = true});
    return sequence;
  }
  if (static_cast<int64_t>(ids.size()) != embeds)
    Fail(ErrorKind::kUsage,
         "the token ids of the prompt are needed to know where its pictures stand: there are {} for {} "
         "embeddings",
         ids.size(), embeds);
  int64_t at = 0, next = 0;  // in the joint sequence, of the references
  for (int64_t i = 0; i < embeds;) {
    const auto is_slot = [&](int64_t j) { return ids[static_cast<size_t>(j)] == image_token; };
    if (is_slot(i)) {
      // How many slots a picture has follows from its size: two pictures may follow each other.
      if (next == static_cast<int64_t>(references.size()))
        Fail(ErrorKind::kUsage, "the prompt has places for more pictures than the {} given", next);
      const TokenGrid grid = references[static_cast<size_t>(next++)];
      const int64_t slots = grid.tokens() / kTokensPerSlot;
      const int64_t end = std::min(embeds, i + slots);
      for (int64_t j = i; j < i + slots; ++j) {
        if (j >= end || !is_slot(j))
          Fail(ErrorKind::kUsage, "the prompt has {} tokens for picture {}, which needs {}", j - i, next,
               slots);
      }
      sequence.segments.push_back({.begin = at, .end = at + grid.tokens(), .is_text = false, .grid = grid});
      i = end;
    } else {
      const int64_t begin = i;
      while (i < embeds && !is_slot(i)) ++i;
      sequence.segments.push_back(
          {.begin = at, .end = at + i - begin, .first_embed = begin, .is_text = true});
    }
    at = sequence.segments.back().end;
  }
  if (next < static_cast<int64_t>(references.size()))
    Fail(ErrorKind::kUsage, "the prompt has places for {} of {} pictures", next, references.size());
  return sequence;
}

void CheckPosition(int64_t last) {
  if (last < kPositions) return;
  Fail(ErrorKind::kUsage,
       "the prompt and its pictures reach position {}, but this model has {} positions; shorten the prompt, "
       "or give fewer or smaller pictures",
       last, kPositions);
}

std::vector<Position> PositionsOf(const JointSequence& sequence) {
  std::vector<Position> positions;
  positions.reserve(static_cast<size_t>(sequence.tokens()));
  int64_t position = 0;
  const auto add_picture = [&](TokenGrid grid) {
    if (std::max(grid.height, grid.width) > 2 * kMostBefore)
      Fail(ErrorKind::kUsage, "a picture of {}x{} tokens is larger than this model's positions reach ({})",
           grid.width, grid.height, 2 * kMostBefore);
    const int64_t top = grid.height - grid.height / 2, left = grid.width - grid.width / 2;
    for (int64_t y = 0; y < grid.height; ++y)
      for (int64_t x = 0; x < grid.width; ++x) positions.push_back({position, y - top, x - left});
    position += std::max(grid.height, grid.width);
  };
  for (const JointSequence::Segment& segment : sequence.segments) {
    if (segment.is_text) {
      for (int64_t i = 0; i < segment.tokens(); ++i, ++position)
        positions.push_back({position, position, position});
    } else {
      add_picture(segment.grid);
    }
  }
  CheckPosition(position);
  add_picture(sequence.target);
  return positions;
}

}  // namespace qwen_image::qwen_image_21
