// How far attention in 8 bits is from exact, on a few queries.
#pragma once

#include <vector>

#include "core/tensor.h"
#include "core/threads.h"
#include "core/view.h"
#include "kernels/interface.h"

namespace qwen_image {

// Some of the queries, [samples, q.cols]. Half of them are spread evenly over all. The others are, in each
// head by itself, those that lose most as they are rounded: so a few tokens that are unlike all others, such
// as those of a text beside a picture, are seen. `group` numbers of a query share a scale.
Tensor SampleQueries(ConstView q, ConstView k, const AttentionShape& shape, int group, ThreadPool& pool);

// For every head the mean over these queries of Σ(out − exact)² / Σexact². NaN is not seen: attention in fp32
// would have it too.
std::vector<double> AttentionErrors(ConstView sampled, ConstView k, ConstView v, const AttentionShape& shape,
                                    ConstView out, ThreadPool& pool);

}  // namespace qwen_image
