#include "weights/fused.h"

#include <algorithm>
#include <map>
#include <optional>

#include "core/fail.h"
#include "families/vocabulary.h"
#include "families/weight_names.h"
#include "files/text.h"
#include "weights/files.h"
#include "weights/names.h"
#include "weights/parts.h"

namespace qwen_image {
namespace {

// Calls `look` with the names of every fused matrix until it returns something.
template <typename Look>
auto LookThroughFused(const Look& look) -> decltype(look(std::declval<const FusedRows&>())) {
  for (const Vocabulary* family : Vocabularies()) {
    for (const FusedRows& fused : family->weights->fused) {
      if (auto found = look(fused); !found.empty()) return found;
    }
  }
  return {};
}

// A tensor of a fused module: "…img_mlp.gate_up" and "weight".
struct FusedTensor {
  WeightFile* file;
  std::string name, module, parameter;
};

std::optional<FusedTensor> AsFused(WeightFile& file, const std::string& name) {
  const std::string module = LookThroughFused([&](const FusedRows& fused) {
    const size_t at = name.find(std::string(fused.whole) + ".");
    return at == name.npos ? std::string() : name.substr(0, at + fused.whole.size());
  });
  if (module.empty()) return std::nullopt;
  return FusedTensor{&file, name, module, name.substr(module.size() + 1)};
}

bool IsValues(std::string_view parameter) { return parameter == "weight" || parameter == "weight._data"; }

class Divider {
 public:
  explicit Divider(WeightSet& set) : set_(set) {}

  void Run() {
    std::vector<FusedTensor> fused;
    for (const auto& file : set_.files) {
      for (const auto& [name, tensor] : file->tensors()) {
        if (auto found = AsFused(*file, name)) fused.push_back(std::move(*found));
      }
    }
    // Shards may part the values from their scales, so all rows are known first.
    for (const FusedTensor& item : fused) {
      if (IsValues(item.parameter)) NoteRows(item);
    }
    for (const FusedTensor& item : fused) {
      const auto rows = rows_.find(item.module);
      if (rows != rows_.end()) Divide(item, rows->second);
    }
  }

 private:
  void NoteRows(const FusedTensor& item) {
    const StoredTensor& tensor = item.file->tensors().at(item.name);
    const std::vector<std::string> parts = PartsOfFused(item.module);
    if (CanDivide(tensor, parts.size())) {
      rows_.emplace(item.module, tensor.shape[0]);
      return;
    }
    Note("fused_rows", item.name, item,
         fmt::format("has type {} and shape {}: rows that cannot be shared out evenly among {}",
                     NameOf(tensor.dtype), ToString(tensor.shape), Printable(JoinNames(parts), 400)));
  }

  void Divide(const FusedTensor& item, int64_t rows) {
    const StoredTensor tensor = item.file->tensors().at(item.name);
    const std::vector<std::string> modules = PartsOfFused(item.module);
    const bool by_rows = item.parameter != kComfyNote && !tensor.shape.empty() && tensor.shape[0] == rows &&
                         CanDivide(tensor, modules.size());
    std::map<std::string, StoredTensor> parts;
    for (size_t i = 0; i < modules.size(); ++i)
      parts[modules[i] + "." + item.parameter] = by_rows ? PartOf(tensor, i, modules.size()) : tensor;
    for (const std::string& taken : item.file->Divide(item.name, std::move(parts)))
      Note("tensor_twice", taken, item,
           fmt::format("is there twice, also as a part of {}", Quoted(item.name)));
  }

  void Note(const char* kind, const std::string& subject, const FusedTensor& item, const std::string& text) {
    set_.findings.push_back(
        {.severity = Severity::kBroken,
         .kind = kind,
         .subject = Printable(subject),
         .text = text,
         .tensors = {subject},
         .errors = {fmt::format("{}: tensor {} {}", item.file->path().string(), Quoted(subject), text)}});
  }

  WeightSet& set_;
  std::map<std::string, int64_t> rows_;  // by module; of those that can be divided
};

}  // namespace

std::vector<std::string> PartsOfFused(std::string_view module, bool flat) {
  return LookThroughFused([&](const FusedRows& fused) {
    const auto spell = [&](std::string_view end) { return flat ? FlatName(end) : std::string(end); };
    std::vector<std::string> parts;
    const std::string whole = spell(fused.whole);
    if (!module.ends_with(whole)) return parts;
    const std::string_view begin = module.substr(0, module.size() - whole.size());
    for (const std::string_view part : fused.parts) parts.push_back(std::string(begin) + spell(part));
    return parts;
  });
}

std::string FusedNameOf(std::string_view module) {
  return LookThroughFused([&](const FusedRows& fused) {
    for (const std::string_view part : fused.parts) {
      if (module.ends_with(part))
        return std::string(module.substr(0, module.size() - part.size())) + std::string(fused.whole);
    }
    return std::string();
  });
}

bool CanDivide(const StoredTensor& tensor, size_t count) {
  const auto parts = static_cast<int64_t>(count);
  if (tensor.shape.empty() || tensor.shape[0] <= 0 || tensor.shape[0] % parts != 0) return false;
  if (tensor.dtype == DType::kGivenUp) return false;
  return ElementCount(tensor.shape) / parts % FormatOf(tensor.dtype).values == 0;
}

StoredTensor PartOf(const StoredTensor& tensor, size_t index, size_t count) {
  const size_t bytes = tensor.bytes.size() / count;
  StoredTensor part{tensor.dtype, tensor.shape, tensor.bytes.subspan(index * bytes, bytes)};
  part.shape[0] /= static_cast<int64_t>(count);
  return part;
}

void DivideFused(WeightSet& set) { Divider(set).Run(); }

}  // namespace qwen_image
