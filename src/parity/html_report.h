// A Comparison as one page for a browser: verdict and first divergence with its hints, error curves, heat
// maps and histograms of the worst tensors, the two pictures and their difference, the manifests'
// differences, and every checkpoint. The page asks nothing of the network, and what it quotes is escaped.
#pragma once

#include <filesystem>

#include "parity/comparison.h"
#include "parity/tensor_set.h"

namespace qwen_image {

// `ref` and `run` are the sets that were compared. Written to a temporary name and renamed. Throws Error
// kCannotWrite.
void WriteHtmlReport(const std::filesystem::path& file, const Comparison& comparison, const TensorSet& ref,
                     const TensorSet& run);
// For two PNG files, which have no tensors.
void WriteHtmlReport(const std::filesystem::path& file, const Comparison& comparison);

}  // namespace qwen_image
