// qwen-image inspect A B: where two sets of weights differ. Quantized tensors are compared by the values they
// stand for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "inspect/config_diff.h"
#include "inspect/inspected.h"
#include "inspect/scan.h"

namespace qwen_image::inspect {

// A tensor that both have. Errors are B − A.
struct TensorDifference {
  std::string name;
  Shape shape_a, shape_b;
  std::string format_a, format_b;
  std::string problem;  // why the values were not compared: other shapes, unknown packing; else empty
  double max_abs = 0;   // NaN if one has a NaN or an infinity where the other has another value
  double nmse = 0;      // Σ (b − a)² / Σ a²; with a zero A, Σ (b − a)²
  double cosine = 1;    // 1 if both are zero
  int64_t worst = -1;   // flat index of the largest error
  double worst_a = 0, worst_b = 0;

  bool identical() const { return problem.empty() && max_abs == 0; }  // in values, not always in type
  double relative() const;                                            // ‖b − a‖ / ‖a‖
  bool Within(double tolerance) const { return problem.empty() && relative() <= tolerance; }  // NaN is not
};

// All tensors of one role: "transformer_blocks.{0…59}.attn.to_q.weight".
struct RoleDifference {
  std::string name;
  size_t tensors = 0;
  double mean_relative = 0, max_relative = 0, max_abs = 0;
};

struct ComponentDiff {
  std::string name_a, name_b;
  std::vector<std::string> only_in_a, only_in_b;
  std::vector<TensorDifference> tensors;  // sorted: the largest error first

  size_t identical() const;
  std::vector<RoleDifference> Roles() const;  // of those that differ, the largest error first
};

struct WeightDiff {
  std::filesystem::path path_a, path_b;
  std::vector<ComponentDiff> components;
  std::vector<std::string> components_only_in_a, components_only_in_b;
  std::vector<ConfigDifference> configs;
  std::vector<Finding> broken;  // findings of this severity in either: what is compared is not whole

  // The same names and shapes, and every relative error within the tolerance. With a tolerance of 0 the types
  // and the config files must agree too.
  bool Equal(double tolerance) const;
};

// Throws Error: kBadInput if one cannot be read, kInterrupted.
WeightDiff DiffWeights(const std::filesystem::path& a, const std::filesystem::path& b,
                       const std::vector<std::string>& filters, const ScanContext& context);

}  // namespace qwen_image::inspect
