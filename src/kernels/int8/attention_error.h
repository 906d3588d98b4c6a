// How far attention in 8 bits is from exact, on a few queries.
#pragma once

#include <vector>

#include "core/tensor.h"
#include "core/threads.h"
#include "core/view.h"
#include "kernels/interface.h"

namespace qwen_image {

// Some of the queries, spread evenly over all: [samples, q.cols].
Tensor SampleQueries(ConstView q);

// For every head the mean over these queries of Σ(out − exact)² / Σexact². NaN is not seen: attention in fp32
// would have it too.
std::vector<double> AttentionErrors(ConstView sampled, ConstView k, ConstView v, const AttentionShape& shape,
                                    ConstView out, ThreadPool& pool);

}  // namespace qwen_image
