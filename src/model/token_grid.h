// A picture's size in the tokens of a diffusion transformer.
#pragma once

#include <cstdint>

namespace qwen_image {

struct TokenGrid {
  int64_t height = 0;
  int64_t width = 0;

  int64_t tokens() const { return height * width; }
};

}  // namespace qwen_image
