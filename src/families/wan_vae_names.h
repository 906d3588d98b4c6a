// The names that VAEs of Wan's kind were published with before diffusers; ComfyUI's files keep them.
#pragma once

#include <string>

namespace qwen_image {

// Brings all but the levels of the encoder and the decoder (`downsamples`, `upsamples`) to diffusers' names:
// the ends, the middle, and the inside of residual blocks wherever they are. Norms that mflux calls a weight
// become gammas.
std::string WanVaeName(std::string name);

}  // namespace qwen_image
