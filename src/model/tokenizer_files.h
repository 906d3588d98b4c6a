// The files of a tokenizer folder, read and checked. Anything that the engine would tokenize differently from
// what the file asks for is an error here, never a different id later.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace qwen_image {

struct AddedToken {
  std::string content;
  uint32_t id = 0;
  bool normalized = false;  // searched in the text after NFC, not before
};

struct TokenizerFiles {
  std::string where;                                        // the file that holds the vocabulary
  std::unordered_map<std::string, uint32_t> vocabulary;     // in the byte-level alphabet: "Ġthe" is " the"
  std::vector<std::pair<std::string, std::string>> merges;  // best rank first
  std::vector<AddedToken> added;                            // control tokens and the like, by id
};

// Reads tokenizer.json, or vocab.json + merges.txt, and tokenizer_config.json, added_tokens.json and
// special_tokens_map.json where they are there, in the order of transformers' from_pretrained().
// Throws Error kBadInput. A file instead of a folder is read as GGUF.
TokenizerFiles ReadTokenizerFiles(const std::filesystem::path& folder);
// The tokenizer inside a text encoder's GGUF file, as llama.cpp writes it.
TokenizerFiles ReadGgufTokenizer(const std::filesystem::path& file);

// "a b" → {"a", "b"}; throws Error kBadInput with `where` and the merge's number.
std::pair<std::string, std::string> SplitMerge(std::string_view line, std::string_view where, size_t number);

}  // namespace qwen_image
