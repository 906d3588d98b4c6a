// Blocks of a type (core/block_format.h), perhaps times a scale that lies beside them: ggml's formats, fp8
// and int8.
#pragma once

#include <memory>
#include <vector>

#include "kernels/weight_matrix.h"

namespace qwen_image {

// `scales`: nothing, one number for all values, or one for each row.
std::shared_ptr<const WeightCoding> MakeBlockCoding(const BlockFormat& format,
                                                    std::vector<float> scales = {});

}  // namespace qwen_image
