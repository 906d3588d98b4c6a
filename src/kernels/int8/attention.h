// Attention whose two products are taken in 8 bits.
//
// Keys: their mean over all tokens is taken away first. That changes all logits of a query by the same
// number, which the softmax does not see, and what is left is smaller and so finer in 8 bits. Keys and
// queries have a scale for each group of 64 numbers. Weights: those of one query and a group of kKeyGroup
// keys are integers from 0 to 255, the largest of the group being 255. What is divided by in the end is their
// sum, so that they add up to 1. Values: a scale and a smallest value for each number of a head and each
// group of keys.
//
// Sums over blocks, the running maximum and the sum of the weights are fp32.
#pragma once

#include <cstdint>
#include <vector>

#include "core/threads.h"
#include "core/view.h"
#include "kernels/interface.h"

namespace qwen_image {

// The error of a head is Σ(out − exact)² / Σexact², the mean of a few of its queries, spread evenly. Heads
// above this are computed in fp32.
inline constexpr double kInt8AttentionLimit = 1e-3;

// Whether Int8Attention can compute this, and is faster than Attention. Not for causal attention, whose
// sequences are short.
bool FitsInt8Attention(const AttentionShape& shape, int64_t queries, int64_t keys);

// As Attention, for shapes that fit.
void Int8Attention(ConstView q, ConstView k, ConstView v, const AttentionShape& shape, View out,
                   ThreadPool& pool, double limit = kInt8AttentionLimit);

// The measured error of every head [heads].
std::vector<double> Int8AttentionErrors(ConstView q, ConstView k, ConstView v, const AttentionShape& shape,
                                        ThreadPool& pool);

}  // namespace qwen_image
