#include "weights/binder.h"

#include <algorithm>

#include "core/fail.h"
#include "core/glob.h"
#include "files/text.h"
#include "weights/names.h"

namespace qwen_image {
namespace {

// No model has as many roles of tensors; a hostile file cannot fill the screen.
constexpr size_t kMaxLines = 200;

}  // namespace

const WeightTensor* WeightBinder::Take(const std::string& name, const Shape& shape) {
  if (!taken_.insert(name).second) Fail(ErrorKind::kInternal, "the tensor {} is taken twice", Quoted(name));
  const auto found = store_.tensors_.find(name);
  if (found == store_.tensors_.end()) {
    missing_.emplace(name, shape);
    return nullptr;
  }
  WeightTensor& tensor = found->second;
  if (!tensor.problem().empty()) {
    unreadable_.push_back({name, tensor.problem()});
    return nullptr;
  }
  if (!tensor.FitTo(shape)) {
    misshapen_.push_back(
        {name, fmt::format("has shape {}, expected {}", ToString(tensor.shape()), ToString(shape))});
    return nullptr;
  }
  return &tensor;
}

WeightMatrix WeightBinder::Matrix(const std::string& name, const Shape& shape) {
  const WeightTensor* tensor = Take(name, shape);
  if (!tensor) return {};
  const WeightMatrix matrix = tensor->Matrix();
  // Possible in GGUF, whose metadata may change a tensor's shape afterwards.
  if (matrix.coding && matrix.cols % matrix.coding->unit() != 0) {
    misshapen_.push_back({name, fmt::format("has rows of {} values, which are not whole blocks of {} ({})",
                                            matrix.cols, matrix.coding->unit(), tensor->Format())});
    return {};
  }
  return matrix;
}

std::vector<float> WeightBinder::Floats(const std::string& name, const Shape& shape) {
  const WeightTensor* tensor = Take(name, shape);
  return tensor ? tensor->Values() : std::vector<float>();
}

std::vector<LowRankUpdate> WeightBinder::Updates(const std::string& name, int64_t out, int64_t in) {
  return updates_ ? updates_->Take(name, out, in) : std::vector<LowRankUpdate>();
}

void WeightBinder::AllowUnused(std::string_view pattern) { unused_patterns_.emplace_back(pattern); }

std::vector<std::string> WeightBinder::Unexpected() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : store_.tensors()) {
    const bool allowed =
        std::any_of(unused_patterns_.begin(), unused_patterns_.end(),
                    [&name = name](const std::string& pattern) { return MatchesGlob(pattern, name); });
    if (!allowed && !taken_.contains(name)) names.push_back(name);
  }
  return names;
}

// Many tools save the same weights under names with one more prefix ("model.diffusion_model."), or one less.
std::string WeightBinder::PrefixHint(const std::vector<std::string>& unexpected) const {
  if (missing_.empty() || unexpected.empty()) return "";
  const std::string& wanted = missing_.begin()->first;
  for (const std::string& found : unexpected) {
    const bool longer = found.ends_with(wanted);
    if (!longer && !wanted.ends_with(found)) continue;
    const std::string prefix = longer ? found.substr(0, found.size() - wanted.size())
                                      : wanted.substr(0, wanted.size() - found.size());
    const auto explains = [&](const auto& item) {
      const std::string& name = item.first;
      if (!longer && !name.starts_with(prefix)) return false;
      const std::string other = longer ? prefix + name : name.substr(prefix.size());
      return std::binary_search(unexpected.begin(), unexpected.end(), other);
    };
    if (static_cast<size_t>(std::count_if(missing_.begin(), missing_.end(), explains)) == missing_.size()) {
      return fmt::format("; all missing ones are there {} the prefix {}", longer ? "with" : "without",
                         Quoted(prefix));
    }
    return "";
  }
  return "";
}

// "transformer_blocks.{0…59}.attn.to_q.bias (60) is missing, …": a line for each role and what is wrong with
// it.
void WeightBinder::AddLines(const std::vector<Problem>& problems, std::string& message) {
  std::map<std::pair<std::string, std::string>, size_t> index;
  std::vector<std::pair<std::string, std::vector<std::string>>> lines;  // what is wrong, and with which
  for (const Problem& problem : problems) {
    const auto [at, added] = index.try_emplace({RoleOf(problem.name), problem.text}, lines.size());
    if (added) lines.emplace_back(problem.text, std::vector<std::string>());
    lines[at->second].second.push_back(problem.name);
  }
  for (size_t i = 0; i < std::min(lines.size(), kMaxLines); ++i) {
    const auto& [text, names] = lines[i];
    message += fmt::format("\n  {}{} {}", Printable(FoldedName(names)),
                           names.size() > 1 ? fmt::format(" ({})", names.size()) : "", text);
  }
  if (lines.size() > kMaxLines) message += fmt::format("\n  … and {} more", lines.size() - kMaxLines);
}

void WeightBinder::Finish() {
  store_.ThrowIfDamaged();
  const std::vector<std::string> unexpected = Unexpected();
  if (missing_.empty() && misshapen_.empty() && unreadable_.empty() && unexpected.empty()) {
    if (updates_) updates_->Finish();  // a broken model is no fault of its updates
    return;
  }
  std::string message = fmt::format(
      "{}: the tensors are not those of this model: {} missing, {} of a wrong shape, {} not readable, {} not "
      "expected{}",
      store_.path().string(), missing_.size(), misshapen_.size(), unreadable_.size(), unexpected.size(),
      PrefixHint(unexpected));
  std::vector<Problem> problems;
  for (const auto& [name, shape] : missing_)
    problems.push_back({name, fmt::format("is missing, expected with shape {}", ToString(shape))});
  problems.insert(problems.end(), misshapen_.begin(), misshapen_.end());
  problems.insert(problems.end(), unreadable_.begin(), unreadable_.end());
  for (const std::string& name : unexpected) problems.push_back({name, "is not expected"});
  AddLines(problems, message);
  throw Error(ErrorKind::kBadInput, message);
}

}  // namespace qwen_image
