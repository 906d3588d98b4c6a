// NameMap renames another program's tensors to the reference's names. It is a JSON object
// {"theirs": "the reference's"}.
//
// A '*' in a key matches any text, as short as possible. The matched text replaces the '*' at the same place
// in the value: {"blocks.*.attn.q": "transformer_blocks.*.attn.to_q"}. So both have equally many stars. A key
// without '*' wins over keys with one. Of several keys that match, the one with the most letters beside its
// stars wins. A name that no key matches stays as it is.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "files/json.h"

namespace qwen_image::record {

class NameMap {
 public:
  // `where` names the source in messages. Throws Error kBadInput.
  NameMap(const Json& map, const std::string& where);
  static NameMap Read(const std::filesystem::path& path);

  // The new name. Throws Error kBadInput if two keys fit equally well and disagree.
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

}  // namespace qwen_image::record
