// Qwen2's byte-level BPE tokenizer: NFC, the pre-tokenizer's regular expression, merges, special tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace qwen_image {

class Tokenizer {
 public:
  // Reads tokenizer.json, or vocab.json + merges.txt (+ added_tokens.json / tokenizer_config.json), or the
  // tokenizer in a text encoder's GGUF file.
  // Throws Error kBadInput.
  explicit Tokenizer(const std::filesystem::path& folder);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;

  enum class SpecialTokens {
    kLiteral,  // "<|im_start|>" in the text is plain text
    kParse,    // "<|im_start|>" in the text becomes the control token, as in diffusers
  };

  // Throws Error kUsage if `text` is not valid UTF-8.
  std::vector<int64_t> Encode(std::string_view text, SpecialTokens special) const;
  std::string Decode(const std::vector<int64_t>& ids) const;
  int64_t TokenId(std::string_view special_token) const;  // throws Error kBadInput if there is none
  int64_t vocabulary_size() const;                        // largest id + 1

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace qwen_image
