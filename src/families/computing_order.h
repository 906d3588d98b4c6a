// When a checkpoint is computed, told by its name: for tensors that were saved without an order.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace qwen_image {

// The modules of a component in the order in which they are computed; '#' stands for a number. Neighbours
// that begin alike up to a '#' are a loop: all of its modules for 0, then all for 1.
struct ComponentOrder {
  std::string_view component;
  std::vector<std::string_view> modules;
};

// Places compare as the checkpoints follow each other in a run. No tensor depends on one with a later place.
using Place = std::vector<int64_t>;

// The place of a checkpoint in a family's run; nothing for names that neither the engine nor the family
// gives.
std::optional<Place> PlaceOf(const std::vector<ComponentOrder>& order, std::string_view checkpoint);

// What several families' components have in common, for ComponentOrder::modules.
std::vector<std::string_view> QwenTextEncoderOrder();
std::vector<std::string_view> WanVaeOrder();

}  // namespace qwen_image
