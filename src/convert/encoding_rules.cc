#include "convert/encoding_rules.h"

#include <algorithm>

#include "core/fail.h"
#include "core/glob.h"
#include "families/vocabulary.h"
#include "families/weight_names.h"
#include "files/text.h"

namespace qwen_image::convert {
namespace {

// The role of a tensor in the first family that knows it.
const WeightRole& RoleOf(Component component, const std::string& name) {
  static constexpr WeightRole kOther = {Component::kTransformer, "*", "other"};
  for (const Vocabulary* family : Vocabularies()) {
    const auto& roles = family->weights->roles;
    const auto found = std::find_if(roles.begin(), roles.end(), [&](const WeightRole& role) {
      return role.component == component && MatchesGlob(role.glob, name);
    });
    if (found != roles.end()) return *found;
  }
  return kOther;
}

bool Fits(const EncodingRule& rule, Component component, const std::string& name) {
  const bool with_component = rule.glob.find('/') != rule.glob.npos;
  return MatchesGlob(rule.glob, with_component ? fmt::format("{}/{}", NameOf(component), name) : name);
}

bool IsQuantizable(Component component, const std::string& name, const WeightTensor& tensor) {
  return component != Component::kVae && name.ends_with(".weight") && tensor.shape().size() == 2;
}

Encoding Kept(const WeightTensor& tensor) {
  const DType dtype = tensor.stored().tensor->dtype;
  if (tensor.parts().empty() && IsComputeType(dtype)) return {.dtype = dtype};
  return {.dtype = dtype == DType::kF64 ? DType::kF32 : DType::kBF16};
}

}  // namespace

EncodingRule ParseEncodingRule(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == text.npos || equals == 0) {
    Fail(ErrorKind::kUsage, "{} is not a rule; write GLOB=TYPE, for example '{}=bf16'", Quoted(text),
         Vocabularies()[0]->weights->example_glob);
  }
  return {text.substr(0, equals), ParseTarget(std::string_view(text).substr(equals + 1))};
}

EncodingRules::EncodingRules(Target to, int group_size, std::vector<EncodingRule> rules)
    : to_(to), group_size_(group_size), rules_(std::move(rules)), used_(rules_.size()) {
  if (std::find(kMlxGroupSizes.begin(), kMlxGroupSizes.end(), group_size) == kMlxGroupSizes.end()) {
    Fail(ErrorKind::kUsage, "a group of {} values is not possible; MLX has 32, 64 and 128", group_size);
  }
}

EncodingChoice EncodingRules::Choose(Component component, const std::string& name,
                                     const WeightTensor& tensor) {
  const WeightRole& role = RoleOf(component, name);
  const bool quantizable = IsQuantizable(component, name, tensor);
  Target target = to_;
  if (target.quantized() && role.eight_bits) target.bits = std::max(target.bits, 8);
  for (size_t i = 0; i < rules_.size(); ++i) {
    if (!Fits(rules_[i], component, name) || (rules_[i].target.quantized() && !quantizable)) continue;
    used_[i] = true;
    target = rules_[i].target;
  }
  if (!target.quantized() && !target.keep) return {{.dtype = target.dtype}, role.name, ""};
  if (target.keep || !quantizable) return {Kept(tensor), role.name, ""};

  int group_size = group_size_;
  while (group_size >= kMlxGroupSizes.front() && tensor.row_size() % group_size != 0) group_size /= 2;
  const std::string row = fmt::format("rows of {} values are not whole groups of", tensor.row_size());
  if (group_size < kMlxGroupSizes.front()) {
    return {Kept(tensor), role.name,
            fmt::format("not quantized: {} {}", row, fmt::join(kMlxGroupSizes, ", "))};
  }
  const Encoding encoding{.dtype = DType::kBF16, .mlx = {target.bits, group_size}};
  if (group_size == group_size_) return {encoding, role.name, ""};
  return {encoding, role.name, fmt::format("groups of {}: {} {}", group_size, row, group_size_)};
}

void EncodingRules::CheckAllUsed() const {
  for (size_t i = 0; i < rules_.size(); ++i) {
    if (used_[i]) continue;
    Fail(ErrorKind::kUsage, "the rule for {} fits no tensor{}", Quoted(rules_[i].glob),
         rules_[i].target.quantized() ? " that can be quantized (matrices outside the VAE)" : "");
  }
}

}  // namespace qwen_image::convert
