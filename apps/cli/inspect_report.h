// What `inspect` prints: tables for people, JSON for tools.
#pragma once

#include <optional>
#include <string>

#include "files/json.h"
#include "inspect/diff.h"
#include "inspect/inspected.h"
#include "text_style.h"

namespace qwen_image::cli {

enum class WeightOrder { kName, kBytes, kStd, kMax, kZeros, kError };

struct InspectReportOptions {
  bool full = false;                       // every key instead of folded blocks, every finding
  bool quiet = false;                      // findings and the verdict only
  WeightOrder order = WeightOrder::kName;  // another one than by name makes a flat list
  std::optional<size_t> top;               // rows of a table at most
  double tolerance = 0;                    // of a difference
  TextStyle style{false};
};

std::string InspectionText(const inspect::Inspection& inspection, const InspectReportOptions& options);
Json InspectionJson(const inspect::Inspection& inspection);

std::string WeightDiffText(const inspect::WeightDiff& diff, const InspectReportOptions& options);
Json WeightDiffJson(const inspect::WeightDiff& diff, double tolerance);

// The findings, the worst first, wrapped to a terminal's width.
std::string FindingsText(const std::vector<Finding>& findings, const InspectReportOptions& options);

}  // namespace qwen_image::cli
