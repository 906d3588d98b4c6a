// What families do to bring the names of other tools to their own.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "families/component.h"

namespace qwen_image {

struct Replacement {
  std::string_view from, to;
};

// The first prefix that fits is replaced.
std::string ReplacePrefix(std::string name, std::span<const Replacement> prefixes);
// The first prefix that fits is removed.
std::string RemovePrefix(std::string name, std::span<const std::string_view> prefixes);
// Every part that fits is replaced, once.
std::string ReplaceParts(std::string name, std::span<const Replacement> parts);
// The replacement of the whole name; nothing if there is none.
std::optional<std::string> ReplaceWhole(std::string_view name, std::span<const Replacement> names);

// "…<begin>12.rest" → 12 and ".rest"; nothing if no number follows.
struct Indexed {
  int64_t index = 0;
  std::string_view rest;
};
std::optional<Indexed> SplitIndex(std::string_view name, std::string_view begin);

// Whether a name of one of ComfyUI's checkpoints, which hold whole models, is that of another component.
bool BelongsToAnother(Component component, std::string_view name);

}  // namespace qwen_image
