// Names of weights, seen as paths: "transformer_blocks.3.attn.to_q.weight" plays the role
// "transformer_blocks.{}.attn.to_q.weight".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qwen_image {

// The parts between dots; a hostile name's parts beyond the 32nd stay together.
std::vector<std::string_view> SplitName(std::string_view name);

bool IsBlockNumber(std::string_view part);  // 1 to 6 digits

std::string RoleOf(std::string_view name);  // block numbers become {}

std::string FlatName(std::string_view name);  // dots become underscores

std::string RangeText(const std::vector<int64_t>& sorted);  // {0, 1, 2, 5} → "0…2,5"

// "transformer_blocks.{0…59}.attn.to_q.weight" for names of one role.
std::string FoldedName(const std::vector<std::string>& names);

// Those of `candidates` (sorted) most like `name`, best first; none that has little in common with it.
std::vector<std::string> NearestNames(std::string_view name, const std::vector<std::string>& candidates,
                                      size_t at_most);

}  // namespace qwen_image
