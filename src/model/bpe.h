// Byte-pair encoding of one word: its bytes become tokens, then neighbours are merged, best rank first.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace qwen_image {

class BytePairEncoder {
 public:
  // `byte_tokens`: the token of each byte.
  explicit BytePairEncoder(const std::array<uint32_t, 256>& byte_tokens) : byte_tokens_(byte_tokens) {}

  // Ranks count up; a pair that is given twice keeps the later rank, as in the official tokenizer.
  void AddMerge(uint32_t left, uint32_t right, uint32_t rank, uint32_t merged) {
    merges_[Key(left, right)] = {rank, merged};
  }
  void ReserveMerges(size_t count) { merges_.reserve(count); }

  // Memory for Encode(), to be used again from word to word.
  struct Scratch {
    struct Symbol {
      uint32_t token;
      bool removed;
      int64_t previous, next;  // -1: none
    };
    struct Candidate {
      uint32_t rank, merged;
      int64_t position;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> queue;
  };

  // Appends the tokens of `word` to `ids`. Takes n·log(n) steps for n bytes.
  void Encode(std::string_view word, Scratch& scratch, std::vector<int64_t>& ids) const;

 private:
  struct Merge {
    uint32_t rank, merged;
  };

  static uint64_t Key(uint32_t left, uint32_t right) { return static_cast<uint64_t>(left) << 32 | right; }
  const Merge* Find(uint32_t left, uint32_t right) const {
    const auto found = merges_.find(Key(left, right));
    return found == merges_.end() ? nullptr : &found->second;
  }
  void Propose(int64_t position, Scratch& scratch) const;
  void Apply(const Scratch::Candidate& candidate, Scratch& scratch) const;

  std::array<uint32_t, 256> byte_tokens_;
  std::unordered_map<uint64_t, Merge> merges_;
};

}  // namespace qwen_image
