// What happens when a mapped file becomes shorter: reading a page that is gone raises SIGBUS, which ends the
// process. With the guard such pages read as zeros, and the mapping is marked, so that code that computed
// with them learns that the result is worth nothing (MappedFile::ThrowIfDamaged).
#pragma once

#include <cstddef>
#include <span>

#include "qwen_image/truncation_guard.h"

namespace qwen_image {

// For MappedFile: the ranges that the guard knows.
class GuardedMapping;
GuardedMapping* GuardMapping(std::span<const std::byte> bytes);
void UnguardMapping(GuardedMapping* mapping);  // before the range is unmapped
bool WasCut(const GuardedMapping* mapping);    // a page of it was found missing

}  // namespace qwen_image
