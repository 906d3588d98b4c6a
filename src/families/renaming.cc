#include "families/renaming.h"

#include <algorithm>
#include <charconv>

#include "families/checkpoint_prefixes.h"

namespace qwen_image {
namespace {

bool StartsWithAny(std::string_view name, std::span<const std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace

std::string ReplacePrefix(std::string name, std::span<const Replacement> prefixes) {
  for (const auto& [from, to] : prefixes) {
    if (name.starts_with(from)) return name.replace(0, from.size(), to);
  }
  return name;
}

std::string ReplaceParts(std::string name, std::span<const Replacement> parts) {
  for (const auto& [from, to] : parts) {
    const size_t at = name.find(from);
    if (at != name.npos) name.replace(at, from.size(), to);
  }
  return name;
}

std::optional<Indexed> SplitIndex(std::string_view name, std::string_view begin) {
  if (!name.starts_with(begin)) return std::nullopt;
  name.remove_prefix(begin.size());
  Indexed found;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), found.index);
  if (error != std::errc() || found.index < 0 || found.index > 1 << 20) return std::nullopt;
  found.rest = name.substr(static_cast<size_t>(end - name.data()));
  return found;
}

std::string RemovePrefix(std::string name, std::span<const std::string_view> prefixes) {
  for (const std::string_view prefix : prefixes) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

bool BelongsToAnother(Component component, std::string_view name) {
  const bool transformer = StartsWithAny(name, kCheckpointTransformer);
  const bool vae = StartsWithAny(name, kCheckpointVae);
  const bool text = StartsWithAny(name, kCheckpointTextEncoder);
  switch (component) {
    case Component::kTransformer:
      return vae || text;
    case Component::kVae:
      return transformer || text;
    default:
      return transformer || vae;
  }
}

std::optional<std::string> ReplaceWhole(std::string_view name, std::span<const Replacement> names) {
  for (const auto& [from, to] : names) {
    if (name == from) return std::string(to);
  }
  return std::nullopt;
}

}  // namespace qwen_image
