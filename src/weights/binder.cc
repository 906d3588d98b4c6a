#include "weights/binder.h"

#include <algorithm>

#include "core/fail.h"
#include "core/glob.h"
#include "files/text.h"

namespace qwen_image {
namespace {

// All of them, even if not one tensor of the real transformer (1933) fits; a hostile file cannot fill the
// screen.
constexpr size_t kMaxLines = 4000;

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
    unreadable_.push_back(fmt::format("{} {}", Printable(name), tensor.problem()));
    return nullptr;
  }
  if (!tensor.FitTo(shape)) {
    misshapen_.push_back(fmt::format("{} has shape {}, expected {}", Printable(name),
                                     ToString(tensor.shape()), ToString(shape)));
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
    misshapen_.push_back(fmt::format("{} has rows of {} values, which are not whole blocks of {} ({})",
                                     Printable(name), matrix.cols, matrix.coding->unit(), tensor->Format()));
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
  size_t lines = 0;
  const auto add = [&](const std::string& line) {
    if (++lines <= kMaxLines) message += "\n  " + line;
  };
  for (const auto& [name, shape] : missing_) {
    add(fmt::format("{} is missing, expected with shape {}", Printable(name), ToString(shape)));
  }
  for (const std::string& line : misshapen_) add(line);
  for (const std::string& line : unreadable_) add(line);
  for (const std::string& name : unexpected) add(fmt::format("{} is not expected", Printable(name)));
  if (lines > kMaxLines) message += fmt::format("\n  … and {} more", lines - kMaxLines);
  throw Error(ErrorKind::kBadInput, message);
}

}  // namespace qwen_image
