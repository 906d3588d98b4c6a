// The patches of a picture as the vision encoder sees it: image_grid_thw of transformers.
#pragma once

#include <cstdint>

namespace qwen_image {

struct ImageGrid {
  int64_t t = 1;  // a still picture is one (repeated) pair of frames
  int64_t h = 0;  // in patches
  int64_t w = 0;

  int64_t patches() const { return t * h * w; }
  // Tokens in the prompt: merge × merge patches make one.
  int64_t tokens(int64_t merge = 2) const { return t * (h / merge) * (w / merge); }
};

}  // namespace qwen_image
