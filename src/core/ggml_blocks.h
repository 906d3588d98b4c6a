// The quantized encodings of ggml, as GGUF files hold them. Values are computed in float with the operations
// of the Python package "gguf", in its order, so that the results have the same bits. (A
// compiler may fuse a product with the sum behind it: such products are exact, 11 bits of a scale times at
// most 11.)
#pragma once

#include <span>

#include "core/block_format.h"

namespace qwen_image {

std::span<const BlockFormat> GgmlBlockFormats();

}  // namespace qwen_image
