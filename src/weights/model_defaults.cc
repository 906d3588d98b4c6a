#include "weights/model_defaults.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "core/fail.h"
#include "families/vocabulary.h"
#include "files/json.h"
#include "files/text.h"
#include "weights/config_reader.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;

// The values of qwen_image.json.
class DefaultsReader {
 public:
  DefaultsReader(const Json& object, const std::string& where) : object_(object), where_(where) {}

  std::optional<std::string> Text(const char* key, size_t max_bytes) const {
    const Json* value = Find(key);
    if (!value) return std::nullopt;
    if (!value->is_string() || value->get_ref<const std::string&>().size() > max_bytes) {
      Refuse(key, *value, fmt::format("a string of at most {} bytes", max_bytes));
    }
    return value->get<std::string>();
  }

  std::optional<int64_t> Integer(const char* key, int64_t min, int64_t max, int64_t multiple = 1) const {
    const Json* value = Find(key);
    if (!value) return std::nullopt;
    const bool fits = value->is_number_unsigned() && value->get<uint64_t>() <= static_cast<uint64_t>(max) &&
                      value->get<int64_t>() >= min && value->get<int64_t>() % multiple == 0;
    if (!fits) {
      Refuse(key, *value,
             fmt::format("a whole number from {} to {}{}", min, max,
                         multiple > 1 ? fmt::format(" that is a multiple of {}", multiple) : ""));
    }
    return value->get<int64_t>();
  }

  // A list of some of `known`.
  std::vector<std::string> Names(const char* key, const std::vector<std::string>& known) const {
    const Json* value = Find(key);
    if (!value) return {};
    std::vector<std::string> names;
    for (const Json& name : value->is_array() ? *value : Json::array({*value})) {
      const bool known_name =
          value->is_array() && name.is_string() &&
          std::find(known.begin(), known.end(), name.get_ref<const std::string&>()) != known.end();
      if (!known_name) Refuse(key, name, fmt::format("a list of names out of {}", fmt::join(known, ", ")));
      names.push_back(name);
    }
    return names;
  }

  std::optional<double> Number(const char* key, double min, double max) const {
    const Json* value = Find(key);
    if (!value) return std::nullopt;
    if (!value->is_number() || !(value->get<double>() >= min && value->get<double>() <= max)) {
      Refuse(key, *value, fmt::format("a number from {} to {}", min, max));
    }
    return value->get<double>();
  }

 private:
  const Json* Find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }

  [[noreturn]] void Refuse(const char* key, const Json& value, const std::string& expected) const {
    Fail(ErrorKind::kBadInput, "{}: \"{}\" is {}, expected {}", where_, key, ShownValue(value), expected);
  }

  const Json& object_;
  const std::string& where_;
};

}  // namespace

ModelDefaults ReadModelDefaults(const fs::path& root) {
  const fs::path path = root / "qwen_image.json";
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error)))
    return {};  // a dangling link is a broken download, not a choice
  const std::string where = path.string();
  const Json object = ReadJsonFile(path, size_t{1} << 20);
  if (!object.is_object()) Fail(ErrorKind::kBadInput, "{}: a JSON object is expected", where);
  constexpr std::array<std::string_view, 9> kKeys = {"name",      "width",    "height",
                                                     "steps",     "cfg",      "negative_prompt",
                                                     "pipelines", "vae_area", "condition_area"};
  for (const auto& [key, value] : object.items()) {
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
      Fail(ErrorKind::kBadInput, "{}: unknown key {}; known are {}", where, Quoted(key),
           fmt::join(kKeys, ", "));
    }
  }
  const DefaultsReader reader(object, where);
  constexpr int64_t kLeastArea = 32 * 32, kMostArea = 4096 * 4096;
  // 16 pixels are one token: the VAE's factor 8 and a patch of 2.
  return {.name = reader.Text("name", 200),
          .width = reader.Integer("width", 16, 8192, 16),
          .height = reader.Integer("height", 16, 8192, 16),
          .steps = reader.Integer("steps", 1, 1000),
          .cfg = reader.Number("cfg", 0, 1000),
          .negative_prompt = reader.Text("negative_prompt", 65536),
          .pipelines = reader.Names("pipelines", KnownVariants()),
          .vae_area = reader.Integer("vae_area", kLeastArea, kMostArea),
          .condition_area = reader.Integer("condition_area", kLeastArea, kMostArea)};
}

}  // namespace qwen_image
