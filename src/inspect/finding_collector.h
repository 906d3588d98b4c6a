// Gathers findings about single tensors: all with the same trouble become one finding, so that sixty blocks
// do not make sixty lines.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "inspect/inspected.h"

namespace qwen_image::inspect {

class FindingCollector {
 public:
  void Add(Severity severity, const std::string& kind, const std::string& tensor, const std::string& text);
  void Add(Finding finding);                    // one that stands alone
  void MoveTo(std::vector<Finding>& findings);  // sorted: the worst first

 private:
  std::map<std::pair<std::string, std::string>, size_t> index_;  // kind, text
  std::vector<Finding> findings_;
};

}  // namespace qwen_image::inspect
