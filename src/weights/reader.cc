#include "weights/reader.h"

#include <algorithm>
#include <charconv>

#include "core/fail.h"
#include "families/vocabulary.h"
#include "files/text.h"
#include "weights/parts.h"

namespace qwen_image {
namespace {

bool IsMarker(std::string_view name) {
  for (const std::string_view ending : {".scale_input", ".input_scale", ".output_scale", ".inv_freq"}) {
    if (name.ends_with(ending)) return true;
  }
  return name == kScaledFp8Marker ||
         std::any_of(Vocabularies().begin(), Vocabularies().end(), [&](const Vocabulary* family) {
           const auto& markers = family->weights->markers;
           return std::find(markers.begin(), markers.end(), name) != markers.end();
         });
}

// What config.json ({"quantization": {"bits", "group_size"}}) or the file's metadata say.
MlxQuantization HintOf(const Json& config, const WeightFile& file) {
  MlxQuantization hint;
  const auto section = config.is_object() ? config.find("quantization") : config.end();
  if (config.is_object() && section != config.end() && section->is_object()) {
    const auto number = [&](const char* key) {
      const auto found = section->find(key);
      return found != section->end() && found->is_number_unsigned() && *found < 1000 ? found->get<int>() : 0;
    };
    hint = {number("bits"), number("group_size")};
  }
  const auto level = file.metadata().find("quantization_level");  // as mflux writes it
  if (hint.bits == 0 && level != file.metadata().end()) {
    std::from_chars(level->second.data(), level->second.data() + level->second.size(), hint.bits);
  }
  return hint;
}

}  // namespace

std::map<std::string, WeightTensor> ReadTensors(std::span<const std::unique_ptr<WeightFile>> files,
                                                const Renamer& rename, const Json& config,
                                                std::vector<Finding>& findings) {
  std::map<std::string, StoredIn> named;
  std::map<std::string_view, std::string_view> stored_names;  // by the new name
  for (const auto& file : files) {
    for (const auto& [stored_name, stored] : file->tensors()) {
      const std::string name = rename(stored_name);
      if (name.empty() || IsMarker(name)) continue;
      const auto [earlier, is_new] = named.emplace(name, StoredIn{&stored, file.get(), stored_name});
      const auto first = stored_names.emplace(earlier->first, stored_name).first;
      // That one name is in two files is found when they are opened.
      if (is_new || first->second == stored_name) continue;
      findings.push_back({.severity = Severity::kBroken,
                          .kind = "tensor_twice",
                          .subject = Printable(name),
                          .text = "is there twice, under two names",
                          .tensors = {stored_name},
                          .errors = {fmt::format("{}: tensor {} is there twice, under two names",
                                                 file->path().string(), Quoted(name))}});
    }
  }
  std::map<std::string, WeightTensor> tensors = JoinParts(named);
  for (auto& [name, tensor] : tensors) {
    if (!tensor.settled()) tensor.set_hint(HintOf(config, *tensor.stored().file));
  }
  return tensors;
}

}  // namespace qwen_image
