#include <algorithm>

#include "core/fail.h"
#include "core/glob.h"
#include "files/text.h"
#include "weights/weight_store.h"

namespace qwen_image {
namespace {

// All of them, even if not one tensor of the real transformer (1933) fits; a hostile file cannot fill the
// screen.
constexpr size_t kMaxLines = 4000;

}  // namespace

const StoredTensor* WeightBinder::Take(const std::string& name, const Shape& shape) {
  if (!taken_.insert(name).second) Fail(ErrorKind::kInternal, "the tensor {} is taken twice", Quoted(name));
  const auto found = store_.tensors().find(name);
  if (found == store_.tensors().end()) {
    missing_.emplace(name, shape);
    return nullptr;
  }
  const StoredTensor* entry = found->second;
  const bool fits = entry->shape == shape;
  const bool computable = ComputeDType(entry->dtype).has_value();
  if (!fits) {
    misshapen_.push_back(fmt::format("{} has shape {}, expected {}", Printable(name), ToString(entry->shape),
                                     ToString(shape)));
  }
  if (!computable) {
    wrong_type_.push_back(
        fmt::format("{} has type {}, which this version does not read yet", Printable(name), entry->dtype));
  }
  return fits && computable ? entry : nullptr;
}

WeightMatrix WeightBinder::Matrix(const std::string& name, const Shape& shape) {
  const StoredTensor* entry = Take(name, shape);
  if (!entry) return {};
  const int64_t rows = shape.empty() ? 1 : shape[0];
  const int64_t cols = shape.size() < 2 ? 1 : ElementCount(Shape(shape.begin() + 1, shape.end()));
  return {.data = entry->bytes.data(), .dtype = *ComputeDType(entry->dtype), .rows = rows, .cols = cols};
}

std::vector<float> WeightBinder::Floats(const std::string& name, const Shape& shape) {
  const StoredTensor* entry = Take(name, shape);
  if (!entry || entry->bytes.empty()) return {};
  std::vector<float> values(static_cast<size_t>(ElementCount(shape)));
  ConvertToFloat(entry->bytes.data(), *ComputeDType(entry->dtype), static_cast<int64_t>(values.size()),
                 values.data());
  return values;
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
  const std::vector<std::string> unexpected = Unexpected();
  if (missing_.empty() && misshapen_.empty() && wrong_type_.empty() && unexpected.empty()) return;
  std::string message = fmt::format(
      "{}: the tensors are not those of this model: {} missing, {} of a wrong shape, {} of a wrong type, {} "
      "not "
      "expected{}",
      store_.folder().string(), missing_.size(), misshapen_.size(), wrong_type_.size(), unexpected.size(),
      PrefixHint(unexpected));
  size_t lines = 0;
  const auto add = [&](const std::string& line) {
    if (++lines <= kMaxLines) message += "\n  " + line;
  };
  for (const auto& [name, shape] : missing_) {
    add(fmt::format("{} is missing, expected with shape {}", Printable(name), ToString(shape)));
  }
  for (const std::string& line : misshapen_) add(line);
  for (const std::string& line : wrong_type_) add(line);
  for (const std::string& name : unexpected) add(fmt::format("{} is not expected", Printable(name)));
  if (lines > kMaxLines) message += fmt::format("\n  … and {} more", lines - kMaxLines);
  throw Error(ErrorKind::kBadInput, message);
}

}  // namespace qwen_image
