#include "families/checkpoint_names.h"

#include <algorithm>
#include <charconv>

#include "families/vocabulary.h"

namespace qwen_image {
namespace {

constexpr std::string_view kDigits = "0123456789";

bool IsKnown(const CheckpointNames& names, std::string_view checkpoint) {
  if (checkpoint.find('/') == checkpoint.npos) return false;  // boundaries belong to the engine
  const std::string_view component = checkpoint.substr(0, checkpoint.find_first_of("./"));
  if (IsBlock(names, component, ModuleOf(checkpoint))) return true;
  const auto block = ParseBlockName(names, checkpoint);
  if (!block) return !MatrixRoleOf(names, ModuleOf(checkpoint)).empty();
  const std::string_view rest = block->rest;
  return rest.starts_with('.') && !MatrixRoleOf(names, rest.substr(1)).empty();
}

}  // namespace

bool MatchesNumbered(std::string_view pattern, std::string_view text) {
  while (!pattern.empty()) {
    if (pattern.front() == '#') {
      const size_t digits = std::min(text.find_first_not_of(kDigits), text.size());
      if (digits == 0) return false;
      text.remove_prefix(digits);
    } else {
      if (text.empty() || text.front() != pattern.front()) return false;
      text.remove_prefix(1);
    }
    pattern.remove_prefix(1);
  }
  return text.empty();
}

std::string_view ModuleOf(std::string_view checkpoint) {
  return checkpoint.substr(checkpoint.rfind('/') + 1);
}

bool IsBlock(const CheckpointNames& names, std::string_view component, std::string_view module) {
  return std::any_of(names.blocks.begin(), names.blocks.end(), [&](const ComponentBlocks& blocks) {
    return component.starts_with(blocks.component) &&
           std::any_of(blocks.modules.begin(), blocks.modules.end(),
                       [&](std::string_view pattern) { return MatchesNumbered(pattern, module); });
  });
}

std::optional<BlockName> ParseBlockName(const CheckpointNames& names, std::string_view checkpoint) {
  const std::string_view module = ModuleOf(checkpoint);
  const std::string_view pass = checkpoint.substr(0, checkpoint.size() - module.size());
  for (const std::string_view list : names.block_lists) {
    if (!module.starts_with(list) || module.size() <= list.size() || module[list.size()] != '.') continue;
    const char* digits = module.data() + list.size() + 1;
    BlockName block;
    const auto parsed = std::from_chars(digits, module.data() + module.size(), block.index);
    if (parsed.ec != std::errc() || *digits == '-') continue;
    const auto end = static_cast<size_t>(parsed.ptr - checkpoint.data());
    block.pass = pass;
    block.list = list;
    block.prefix = checkpoint.substr(0, end);
    block.rest = checkpoint.substr(end);
    return block;
  }
  return std::nullopt;
}

std::string_view MatrixRoleOf(const CheckpointNames& names, std::string_view module) {
  for (const MatrixRole& matrix : names.matrices) {
    if (module == matrix.module) return matrix.role;
  }
  return "";
}

const CheckpointNames& NamesFor(std::span<const std::string> checkpoints) {
  const CheckpointNames* best = Vocabularies().front()->checkpoints;
  std::ptrdiff_t most = 0;
  for (const Vocabulary* vocabulary : Vocabularies()) {
    const CheckpointNames& names = *vocabulary->checkpoints;
    const auto known = std::count_if(checkpoints.begin(), checkpoints.end(),
                                     [&](const std::string& name) { return IsKnown(names, name); });
    if (known <= most) continue;
    most = known;
    best = &names;
  }
  return *best;
}

}  // namespace qwen_image
