#include "lora/config.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "families/checkpoint_prefixes.h"
#include "files/text.h"
#include "lora/names.h"
#include "weights/config_reader.h"

namespace qwen_image::lora {
namespace {

constexpr const char* kMetadataKey = "lora_adapter_metadata";
constexpr std::string_view kComponent = kTransformerPrefix;  // diffusers writes "transformer.lora_alpha"

// PEFT reads a pattern as a regular expression for the end of a name; names of modules are what is met.
bool Matches(std::string_view pattern, std::string_view module) {
  const bool whole = pattern.starts_with('^');
  if (whole) pattern.remove_prefix(1);
  if (module == pattern) return true;
  return !whole && module.size() > pattern.size() && module.ends_with(pattern) &&
         module[module.size() - pattern.size() - 1] == '.';
}

double ValueFor(const std::map<std::string, double>& patterns, const std::string& module, double otherwise) {
  const auto found = std::find_if(patterns.begin(), patterns.end(),
                                  [&](const auto& item) { return Matches(item.first, module); });
  return found == patterns.end() ? otherwise : found->second;
}

std::map<std::string, double> ReadPatterns(const ConfigReader& config, const Json& json, const char* key) {
  std::map<std::string, double> patterns;
  if (!config.Has(key)) return patterns;
  const ConfigReader values = config.Object(key);
  for (const auto& [written, value] : json.at(key).items()) {
    std::string pattern = written;
    for (size_t at = pattern.find("\\."); at != pattern.npos; at = pattern.find("\\.")) pattern.erase(at, 1);
    if (pattern.find_first_of("\\*+?[](){}|$") != pattern.npos) {
      Fail(ErrorKind::kBadInput, "{}: {} holds the pattern {}; names of modules are expected", config.where(),
           key, Quoted(written));
    }
    patterns[pattern] = values.Number(written);
  }
  return patterns;
}

Config Parse(const Json& json, const std::string& where) {
  const ConfigReader config(json, where);
  Config read;
  read.where = where;
  read.r = config.Int("r", 1, 1 << 20, read.r);
  read.lora_alpha = config.Number("lora_alpha", read.lora_alpha);
  read.use_rslora = config.Bool("use_rslora", false);
  read.rank_pattern = ReadPatterns(config, json, "rank_pattern");
  read.alpha_pattern = ReadPatterns(config, json, "alpha_pattern");
  for (const char* key : {"use_dora", "lora_bias"}) {
    if (config.Bool(key, false)) Fail(ErrorKind::kBadInput, "{}: {} is not supported", where, key);
  }
  const std::string type = config.String("peft_type", "LORA");
  if (type != "LORA")
    Fail(ErrorKind::kBadInput, "{}: the adapter is of type {}, not LORA", where, Quoted(type));
  return read;
}

// The keys of the transformer, without its name; all keys if no component is named.
Json KeysOfTransformer(const Json& json) {
  Json keys = Json::object();
  for (const auto& [key, value] : json.items()) {
    if (key.starts_with(kComponent)) keys[key.substr(kComponent.size())] = value;
  }
  return keys.empty() ? json : keys;
}

}  // namespace

double Config::FactorOf(const std::string& module, int64_t rank) const {
  const double written = ValueFor(rank_pattern, module, static_cast<double>(r));
  if (written != static_cast<double>(rank)) {
    Fail(ErrorKind::kBadInput, "has rank {}, but {} says {}", rank, where, written);
  }
  return ValueFor(alpha_pattern, module, lora_alpha) /
         (use_rslora ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
}

std::optional<Config> ReadConfig(const WeightFile& file) {
  const auto found = file.metadata().find(kMetadataKey);
  if (found != file.metadata().end() && !found->second.empty()) {
    const std::string where = fmt::format("{}: {}", file.path().string(), kMetadataKey);
    const Json json = ParseJson(found->second, where);
    if (!json.is_object()) Fail(ErrorKind::kBadInput, "{} is not an object", where);
    const Json keys = KeysOfTransformer(json);
    if (!keys.contains("r") && !keys.contains("lora_alpha")) return std::nullopt;  // of something else
    return Parse(keys, where);
  }
  const bool peft = !file.tensors().empty() && HasPeftPrefix(file.tensors().begin()->first);
  const std::filesystem::path path = file.path().parent_path() / "adapter_config.json";
  std::error_code error;
  if (!peft || !std::filesystem::exists(path, error)) return std::nullopt;
  return Parse(ReadJsonFile(path), path.string());
}

}  // namespace qwen_image::lora
