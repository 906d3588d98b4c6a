// The keys of a component as a tree, with equal blocks folded: transformer_blocks.{0…59} is shown once.
#pragma once

#include <string>
#include <vector>

#include "inspect/inspected.h"

namespace qwen_image::cli {

struct WeightTreeNode {
  std::string label;                     // a part of the name, or "{0…59}", or several parts with dots
  std::vector<WeightTreeNode> children;  // none for a leaf
  std::vector<const inspect::InspectedTensor*> tensors;  // of a leaf: one, or one of each folded block

  bool leaf() const { return !tensors.empty(); }
};

// Scales and biases of quantized tensors are left out unless `full`, which also leaves every block on its
// own.
std::vector<WeightTreeNode> BuildWeightTree(const inspect::InspectedComponent& component, bool full);

}  // namespace qwen_image::cli
