// Which tensor is written in which encoding.
#pragma once

#include <string>
#include <vector>

#include "convert/encoding.h"
#include "families/component.h"
#include "weights/tensor.h"

namespace qwen_image::convert {

// "GLOB=TYPE": '*' matches any text. A glob without a '/' is compared with tensors' names, one with it with
// "transformer/NAME", "vae/NAME", …
struct EncodingRule {
  std::string glob;
  Target target;
};
EncodingRule ParseEncodingRule(const std::string& text);  // throws Error kUsage

struct EncodingChoice {
  Encoding encoding;
  std::string_view role;  // "attention", "modulation", "norm", …: what totals are grouped by
  std::string note;       // why it is not what was asked for; usually empty
};

// The project's own choice for `to`, and over it the user's rules, of which the last that fits counts.
//
// What is kept is written as the source has it, or in bfloat16 if the source has it quantized otherwise.
// Only matrices are quantized: biases, norms and convolutions are kept, and so is the whole VAE. With fewer
// than 8 bits, matrices that all pixels or tokens pass through, or that steer them all, get 8.
class EncodingRules {
 public:
  EncodingRules(Target to, int group_size, std::vector<EncodingRule> rules);

  EncodingChoice Choose(Component component, const std::string& name, const WeightTensor& tensor);

  // After all tensors: throws Error kUsage if a rule changed nothing because no tensor fits it.
  void CheckAllUsed() const;

 private:
  Target to_;
  int group_size_;
  std::vector<EncodingRule> rules_;
  std::vector<bool> used_;
};

}  // namespace qwen_image::convert
