// WriteHtmlReport: a Comparison as one page for a browser. It shows the verdict, the first divergence with
// its hints, error curves, heat maps and histograms of the worst tensors, the two pictures and their
// difference, the differences of the manifests, and every checkpoint. The page loads nothing from the
// network. All text it quotes is escaped.
#pragma once

#include <filesystem>

#include "parity/compare/result.h"
#include "parity/record/tensor_set.h"

namespace qwen_image::report {

// `ref` and `run` are the sets that were compared. The file is written under a temporary name and renamed.
// Throws Error kCannotWrite.
void WriteHtmlReport(const std::filesystem::path& file, const compare::Comparison& comparison,
                     const record::TensorSet& ref, const record::TensorSet& run);
// For two PNG files, which have no tensors.
void WriteHtmlReport(const std::filesystem::path& file, const compare::Comparison& comparison);

}  // namespace qwen_image::report
