#include "lora/names.h"

#include <algorithm>
#include <cctype>
#include <numeric>

#include "core/glob.h"
#include "families/checkpoint_prefixes.h"
#include "families/vocabulary.h"
#include "weights/names.h"

namespace qwen_image::lora {
namespace {

constexpr std::string_view kPeftPrefix = "base_model.model.";
constexpr std::string_view kPrefixes[] = {kPeftPrefix, kCheckpointTransformer[0], kCheckpointTransformer[1],
                                          kTransformerPrefix};
constexpr std::string_view kFlatPrefixes[] = {"lora_unet_", "lora_transformer_", "lycoris_"};

struct Ending {
  std::string_view text;
  Part part;
};
constexpr Ending kEndings[] = {
    {".lora_down.weight", Part::kDown},
    {".lora_up.weight", Part::kUp},
    {".lora.down.weight", Part::kDown},
    {".lora.up.weight", Part::kUp},
    {".lora_A.weight", Part::kDown},
    {".lora_B.weight", Part::kUp},
    {".lora_A.default.weight", Part::kDown},
    {".lora_B.default.weight", Part::kUp},
    {".lora_A", Part::kDown},
    {".lora_B", Part::kUp},
    {".alpha", Part::kAlpha},
};

struct Kind {
  std::string_view sign, what;
};
constexpr Kind kTextEncoderPrefixes[] = {{"text_encoder", ""}, {"lora_te", ""}, {"text_model", ""}};
constexpr Kind kKinds[] = {
    {"dora_scale", "DoRA"},
    {"lora_magnitude_vector", "DoRA"},
    {"lokr_", "LoKr"},
    {"hada_", "LoHa"},
    {".oft_", "OFT"},
    {".lora_mid", "a LoRA for convolutions"},
    {".lora_B.bias", "a LoRA with biases"},
    {".lora_up.bias", "a LoRA with biases"},
    {".diff", "whole differences of weights (diff)"},
};

template <typename Strings>
bool RemoveOneOf(const Strings& prefixes, std::string_view& name) {
  for (const std::string_view prefix : prefixes) {
    if (!name.starts_with(prefix)) continue;
    name.remove_prefix(prefix.size());
    return true;
  }
  return false;
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::optional<TensorName> ParseName(std::string_view stored_name, const WeightNames& family) {
  const auto* const ending =
      std::find_if(std::begin(kEndings), std::end(kEndings), [&](const Ending& candidate) {
        return stored_name.ends_with(candidate.text) && stored_name.size() > candidate.text.size();
      });
  if (ending == std::end(kEndings)) return std::nullopt;
  std::string_view module = stored_name.substr(0, stored_name.size() - ending->text.size());
  while (RemoveOneOf(kPrefixes, module)) continue;
  TensorName name;
  name.part = ending->part;
  name.flat = RemoveOneOf(kFlatPrefixes, module);
  if (name.flat) {
    name.module = module;
    return name;
  }
  // The names of other tools end with a dot in the tables.
  name.module = family.renamer(Component::kTransformer, {}, nullptr)(std::string(module) + ".");
  if (name.module.empty()) return std::nullopt;  // of another component
  name.module.pop_back();
  return name;
}

const Vocabulary* FamilyOf(std::span<const std::string_view> stored_names) {
  for (size_t i = Vocabularies().size(); i > 0; --i) {
    const WeightNames& names = *Vocabularies()[i - 1]->weights;
    const auto is_own = [&](std::string_view stored_name) {
      const auto name = ParseName(stored_name, names);
      return name &&
             std::any_of(names.own_layers.begin(), names.own_layers.end(), [&](std::string_view glob) {
               return MatchesGlob(name->flat ? FlatName(glob) : std::string(glob), name->module);
             });
    };
    if (std::any_of(stored_names.begin(), stored_names.end(), is_own)) return Vocabularies()[i - 1];
  }
  return nullptr;
}

bool HasPeftPrefix(std::string_view stored_name) { return stored_name.starts_with(kPeftPrefix); }

std::string_view RefusedAdapterKind(std::string_view stored_name) {
  std::string_view name = stored_name;
  while (RemoveOneOf(kPrefixes, name)) continue;
  for (const Kind& prefix : kTextEncoderPrefixes) {
    if (name.starts_with(prefix.sign)) return "a LoRA for the text encoder";
  }
  for (const Kind& kind : kKinds) {
    if (name.find(kind.sign) != name.npos) return kind.what;
  }
  return "";
}

std::vector<std::string> NearestLayers(std::string_view name, const std::vector<std::string>& candidates,
                                       size_t at_most) {
  constexpr size_t kLongest = 200;  // a hostile name takes no time
  name = name.substr(0, kLongest);
  std::vector<std::pair<size_t, const std::string*>> scored;
  for (const std::string& candidate : candidates) {
    scored.emplace_back(EditDistance(name, candidate.substr(0, kLongest)), &candidate);
  }
  std::stable_sort(scored.begin(), scored.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> nearest;
  for (size_t i = 0; i < std::min(at_most, scored.size()); ++i) nearest.push_back(*scored[i].second);
  return nearest;
}

int64_t LightningSteps(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (lower.find("lightning") == lower.npos) return 0;
  for (size_t at = lower.find("step"); at != lower.npos; at = lower.find("step", at + 1)) {
    size_t digit = at;  // behind the digits: "8steps", "8-step", "8_steps"
    if (digit > 0 && std::string_view("-_ ").find(lower[digit - 1]) != std::string_view::npos) --digit;
    const bool alone =
        digit > 0 && (digit == 1 || !std::isdigit(static_cast<unsigned char>(lower[digit - 2])));
    if (alone && (lower[digit - 1] == '4' || lower[digit - 1] == '8')) return lower[digit - 1] - '0';
  }
  return 0;
}

}  // namespace qwen_image::lora
