// A limit of deflate, the packing of PNG and zip files.
#pragma once

#include <cstdint>

namespace qwen_image {

constexpr uint64_t kMaxDeflateRatio = 1032;  // zlib cannot pack tighter

}  // namespace qwen_image
