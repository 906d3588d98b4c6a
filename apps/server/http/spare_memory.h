// A little memory that is kept for the moment when there is no more: errors take memory to be told, and
// nlohmann's JSON even to be destroyed.
#pragma once

namespace qwen_image::http {

// From now on the first allocation that fails lets the spare memory go, so that what has to be cleaned up
// then can be. For the program alone: there is one such handler in a process.
void KeepSpareMemory();

// Takes it again, when it was let go and there is room.
void RefillSpareMemory() noexcept;

}  // namespace qwen_image::http
