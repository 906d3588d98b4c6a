#include "model/bpe.h"

#include <algorithm>
#include <tuple>

namespace qwen_image {
namespace {

// For a heap with the lowest rank on top, and the leftmost of equal ones.
bool IsWorse(const BytePairEncoder::Scratch::Candidate& a, const BytePairEncoder::Scratch::Candidate& b) {
  return std::tie(a.rank, a.position) > std::tie(b.rank, b.position);
}

}  // namespace

// Puts the pair that starts at `position` into the queue, if there is a merge for it.
void BytePairEncoder::Propose(int64_t position, Scratch& scratch) const {
  const auto& left = scratch.symbols[static_cast<size_t>(position)];
  if (left.next < 0) return;
  const Merge* merge = Find(left.token, scratch.symbols[static_cast<size_t>(left.next)].token);
  if (merge == nullptr) return;
  scratch.queue.push_back({merge->rank, merge->merged, position});
  std::push_heap(scratch.queue.begin(), scratch.queue.end(), IsWorse);
}

void BytePairEncoder::Apply(const Scratch::Candidate& candidate, Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& left = symbols[static_cast<size_t>(candidate.position)];
  if (left.removed || left.next < 0) return;
  auto& right = symbols[static_cast<size_t>(left.next)];
  // A candidate outlives its pair when a neighbour was merged.
  const Merge* merge = Find(left.token, right.token);
  if (merge == nullptr || merge->merged != candidate.merged) return;

  left.token = candidate.merged;
  left.next = right.next;
  right.removed = true;
  if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = candidate.position;

  if (left.previous >= 0) Propose(left.previous, scratch);
  Propose(candidate.position, scratch);
}

void BytePairEncoder::Encode(std::string_view word, Scratch& scratch, std::vector<int64_t>& ids) const {
  auto& [symbols, queue] = scratch;
  symbols.clear();
  queue.clear();
  const auto count = static_cast<int64_t>(word.size());
  for (int64_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(word[static_cast<size_t>(i)]);
    symbols.push_back({byte_tokens_[byte], false, i - 1, i + 1 < count ? i + 1 : -1});
  }
  for (int64_t i = 0; i < count; ++i) Propose(i, scratch);
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), IsWorse);
    const Scratch::Candidate best = queue.back();
    queue.pop_back();
    Apply(best, scratch);
  }
  for (const auto& symbol : symbols) {
    if (!symbol.removed) ids.push_back(symbol.token);
  }
}

}  // namespace qwen_image
