// Names that nobody can guess.
#pragma once

#include <cstddef>
#include <string>

namespace qwen_image {

// So many hexadecimal digits, an even number, of the system's randomness. Throws Error kInternal if it has
// none.
std::string RandomHex(size_t digits);

}  // namespace qwen_image
