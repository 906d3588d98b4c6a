// Calls of C libraries that report errors with longjmp (libpng, libjpeg).
#pragma once

#include <csetjmp>
#include <type_traits>

namespace qwen_image {

// False if `calls` ended in a jump to `jump`. A jump skips destructors. So such a library's functions are
// called only here, by a lambda that has no objects with destructors: then nothing is skipped, and the jump
// ends in this frame. Not inlined, so that the caller's variables are not kept in registers that the jump
// restores.
template <typename Calls>
[[gnu::noinline]] bool ReturnsFrom(std::jmp_buf& jump, const Calls& calls) {
  static_assert(std::is_trivially_destructible_v<Calls>);
  if (setjmp(jump)) return false;
  calls();
  return true;
}

}  // namespace qwen_image
