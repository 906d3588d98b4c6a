// A map from the names of another program's dumps to the reference's: a JSON object {"theirs": "the
// reference's"}.
//
// A '*' in a key matches any text, as short as possible, and what it matched takes the place of the '*' at
// the same position in the value, so that both have equally many: {"blocks.*.attn.q":
// "transformer_blocks.*.attn.to_q"}. A key without '*' goes before those with; of several that match, the one
// with the most letters beside its '*' counts. Names that no key matches stay as they are.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "files/json.h"

namespace qwen_image {

class NameMap {
 public:
  // `where` names the source in messages. Throws Error kBadInput.
  NameMap(const Json& map, const std::string& where);
  static NameMap Read(const std::filesystem::path& path);

  // Throws Error kBadInput if two keys fit equally well and disagree.
  std::string operator()(const std::string& name) const;

 private:
  struct Pattern {
    std::string key, value;
    size_t letters = 0;
  };
  std::string where_;
  std::map<std::string, std::string> exact_;
  std::vector<Pattern> patterns_;  // those with the most letters first
};

}  // namespace qwen_image
