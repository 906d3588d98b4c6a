#include "weight_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "files/text.h"
#include "weights/names.h"

namespace qwen_image::cli {
namespace {

// Orders 2 before 10.
struct NaturalLess {
  bool operator()(std::string_view a, std::string_view b) const {
    if (IsBlockNumber(a) && IsBlockNumber(b) && a.size() != b.size()) return a.size() < b.size();
    return a < b;
  }
};

struct Trie {
  std::map<std::string_view, Trie, NaturalLess> children;
  const inspect::InspectedTensor* tensor = nullptr;
};

struct Folded {
  WeightTreeNode node;
  std::string signature;  // equal for nodes that differ in numbers only
};

// Adds the tensors of `other`, which has the same structure.
void Merge(WeightTreeNode& node, const WeightTreeNode& other) {
  node.tensors.insert(node.tensors.end(), other.tensors.begin(), other.tensors.end());
  for (size_t i = 0; i < node.children.size(); ++i) Merge(node.children[i], other.children[i]);
}

class Folder {
 public:
  explicit Folder(bool full) : full_(full) {}

  std::vector<WeightTreeNode> Children(const Trie& trie, std::string* signature) const {
    std::vector<WeightTreeNode> nodes;
    std::map<std::string, std::pair<size_t, std::vector<int64_t>>> groups;  // signature → place, numbers
    for (const auto& [label, child] : trie.children) {
      if (child.tensor) nodes.push_back(Leaf(label, *child.tensor, signature));
      if (child.children.empty()) continue;
      Folded folded = Inner(label, child);
      if (!full_ && IsBlockNumber(label)) {
        int64_t number = 0;
        std::from_chars(label.data(), label.data() + label.size(), number);
        const auto [at, added] = groups.try_emplace(folded.signature, nodes.size(), std::vector<int64_t>{});
        at->second.second.push_back(number);
        if (!added) {
          Merge(nodes[at->second.first], folded.node);
          *signature += Printable(label) + "=";
          continue;
        }
      }
      nodes.push_back(std::move(folded.node));
      *signature += fmt::format("{}{{{}}}", Printable(label), folded.signature);
    }
    for (const auto& [key, group] : groups) {
      const auto& [place, numbers] = group;
      nodes[place].label =
          numbers.size() > 1 ? fmt::format("{{{}}}", RangeText(numbers)) : std::to_string(numbers[0]);
    }
    for (WeightTreeNode& node : nodes) Shorten(node);
    return nodes;
  }

 private:
  WeightTreeNode Leaf(std::string_view label, const inspect::InspectedTensor& tensor,
                      std::string* signature) const {
    *signature += Printable(label) + ToString(tensor.shape) + tensor.format + ";";
    return {.label = Printable(label), .tensors = {&tensor}};
  }

  Folded Inner(std::string_view label, const Trie& trie) const {
    Folded folded;
    folded.node.children = Children(trie, &folded.signature);
    if (full_ || !IsBlockNumber(label)) folded.node.label = Printable(label);
    return folded;
  }

  // "a" that holds nothing but "b" becomes "a.b".
  static void Shorten(WeightTreeNode& node) {
    if (node.leaf() || node.children.size() != 1) return;
    WeightTreeNode only = std::move(node.children[0]);
    only.label = node.label + "." + only.label;
    node = std::move(only);
  }

  bool full_;
};

}  // namespace

std::vector<WeightTreeNode> BuildWeightTree(const inspect::InspectedComponent& component, bool full) {
  Trie root;
  for (const inspect::InspectedTensor& tensor : component.tensors) {
    if (!full && !tensor.part_of.empty()) continue;
    Trie* at = &root;
    for (const std::string_view part : SplitName(tensor.name)) at = &at->children[part];
    at->tensor = &tensor;
  }
  std::string signature;
  return Folder(full).Children(root, &signature);
}

}  // namespace qwen_image::cli
