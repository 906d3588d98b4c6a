#include "inspect/tensors.h"

#include <algorithm>
#include <map>

#include "core/fail.h"
#include "inspect/finding_collector.h"
#include "weights/parts.h"
#include "weights/reader.h"
#include "weights/recognize.h"

namespace qwen_image::inspect {
namespace {

// One for each component that the files hold, each with the tensors that no other has claimed; names that no
// component has stay as they are.
std::vector<Renamer> RenamersOf(const InspectedComponent& component) {
  std::vector<std::string_view> names;
  for (const auto& file : component.files) {
    const std::vector<std::string_view> more = StoredNames(*file);
    names.insert(names.end(), more.begin(), more.end());
  }
  std::vector<Renamer> renamers;
  const RecognizedFile found = Recognize(component.files);
  for (const Component part : found.components) {
    const Renamer own = found.family->weights->renamer(part, names, component.config);
    renamers.push_back([own, earlier = renamers](std::string_view stored_name) {
      const bool claimed = std::any_of(earlier.begin(), earlier.end(),
                                       [&](const Renamer& other) { return !other(stored_name).empty(); });
      return claimed ? std::string() : own(stored_name);
    });
  }
  if (!renamers.empty()) return renamers;
  return {[](std::string_view stored_name) { return std::string(stored_name); }};
}

class Lister {
 public:
  explicit Lister(InspectedComponent& component) : component_(component) {}

  void Run() {
    std::map<std::string_view, const WeightFile*> seen;
    for (const auto& file : component_.files) {
      for (const auto& [name, stored] : file->tensors()) {
        if (!seen.emplace(name, file.get()).second) continue;  // in two files: that is a finding already
        InspectedTensor& tensor = by_stored_[&stored];
        tensor = {.name = name, .file = file.get(), .stored = &stored};
        Show(tensor, WeightTensor(StoredIn{&stored, file.get()}));
      }
    }
    for (const Renamer& rename : RenamersOf(component_)) {
      for (auto& [name, weight] :
           ReadTensors(component_.files, rename, component_.config, component_.findings))
        Take(name, std::move(weight));
    }
    for (auto& [stored, tensor] : by_stored_) component_.tensors.push_back(std::move(tensor));
    std::sort(component_.tensors.begin(), component_.tensors.end(),
              [](const InspectedTensor& a, const InspectedTensor& b) { return a.name < b.name; });
    for (const InspectedTensor& tensor : component_.tensors) NoteProblem(tensor);
    ReportOrphans();
    ReportFp8();
    findings_.MoveTo(component_.findings);
  }

 private:
  static void Show(InspectedTensor& tensor, WeightTensor weight) {
    tensor.shape = weight.shape();
    tensor.format = weight.Format();
    tensor.weight = std::make_shared<WeightTensor>(std::move(weight));
  }

  // `name` is the one that the loader gives to it.
  void Take(const std::string& name, WeightTensor weight) {
    const auto found = by_stored_.find(weight.stored().tensor);
    if (found == by_stored_.end()) return;
    InspectedTensor& tensor = found->second;
    // Of a joined tensor the file has only a part under a name of its own ("X.weight._data").
    constexpr std::string_view kData = "._data";
    if (tensor.name.ends_with(kData) && !name.ends_with(kData))
      tensor.name.resize(tensor.name.size() - kData.size());
    for (const StoredIn& part : weight.parts()) Join(tensor, part);
    if (weight.note().tensor) Join(tensor, weight.note());
    weight.ChooseQuantization();
    Show(tensor, std::move(weight));
  }

  void Join(InspectedTensor& tensor, const StoredIn& stored) {
    const auto found = by_stored_.find(stored.tensor);
    if (found == by_stored_.end()) return;
    found->second.part_of = tensor.name;
    tensor.parts.push_back(found->second.name);
    tensor.part_bytes += found->second.bytes();
  }

  void Note(Severity severity, const char* kind, const std::string& name, const std::string& text) {
    findings_.Add(severity, kind, name, text);
  }

  void NoteProblem(const InspectedTensor& tensor) {
    const WeightTensor& weight = *tensor.weight;
    switch (weight.problem_kind()) {
      case TensorProblem::Kind::kNone:
        if (!weight.settled()) NoteAmbiguous(tensor);
        return;
      case TensorProblem::Kind::kNoWeights:  // ids, masks and the like, unless they are called otherwise
        if (tensor.name.ends_with(".weight"))
          Note(Severity::kBroken, "unknown_type", tensor.name, weight.problem());
        return;
      case TensorProblem::Kind::kMissingScales:
        return Note(Severity::kBroken, "missing_scales", tensor.name, weight.problem());
      case TensorProblem::Kind::kMissingBiases:
        return Note(Severity::kBroken, "missing_biases", tensor.name, weight.problem());
      case TensorProblem::Kind::kPartsDoNotFit:
        return Note(Severity::kBroken, "parts_do_not_fit", tensor.name, weight.problem());
      case TensorProblem::Kind::kNotRead:
        return Note(Severity::kWarning, "unknown_type", tensor.name, weight.problem() + ": no statistics");
      case TensorProblem::Kind::kMicroscaled:
        return Note(Severity::kNote, "no_statistics", tensor.name, weight.problem());
    }
  }

  void NoteAmbiguous(const InspectedTensor& tensor) {
    std::string all;
    for (const MlxQuantization& q : tensor.weight->possible())
      all += fmt::format("{}{}-bit g{}", all.empty() ? "" : " or ", q.bits, q.group_size);
    Note(Severity::kNote, "ambiguous_quantization", tensor.name,
         fmt::format("the shapes fit {}, and there are too few values to tell: no statistics", all));
  }

  // Scales or biases with nothing to scale, which the loader does not expect.
  void ReportOrphans() {
    for (const InspectedTensor& tensor : component_.tensors) {
      if (!tensor.part_of.empty()) continue;
      const size_t dot = tensor.name.rfind('.');
      if (dot == tensor.name.npos) continue;
      const std::string_view last = std::string_view(tensor.name).substr(dot + 1);
      const InspectedTensor* weight = component_.Find(tensor.name.substr(0, dot + 1) + "weight");
      if (component_.is_shard && !weight) continue;
      if (last == "scales" || last == "biases") {
        Note(Severity::kBroken, "orphaned_part", tensor.name,
             weight ? fmt::format("belongs to packed (U32) weights, but its .weight is {}",
                                  NameOf(weight->stored->dtype))
                    : "belongs to packed weights, but there is no .weight beside it");
      } else if (const std::string why = OrphanedScale(last, weight); !why.empty()) {
        Note(Severity::kBroken, "orphaned_part", tensor.name, why);
      }
    }
  }

  // Why a scale that was not joined to the .weight beside it cannot be read; empty: it is no scale, or the
  // weight's own problem says more.
  static std::string OrphanedScale(std::string_view last, const InspectedTensor* weight) {
    const bool known =
        std::find(std::begin(kScaleNames), std::end(kScaleNames), last) != std::end(kScaleNames);
    const bool unknown = last == "scale" && weight && IsFp8(weight->stored->dtype);
    if (!known && !unknown) return "";
    if (!weight) return "is a scale, but there is no .weight beside it";
    if (weight->weight->problem_kind() != TensorProblem::Kind::kNone) return "";
    if (!weight->parts.empty()) return fmt::format("is a second scale beside {}", weight->parts.front());
    if (unknown) return "looks like a scale of fp8 weights, which no tool calls so; it is not applied";
    return fmt::format("is a scale, but its .weight is {}, which has none", NameOf(weight->stored->dtype));
  }

  // fp8 with scales here and none there.
  void ReportFp8() {
    const bool marked = component_.Find(kScaledFp8Marker) != nullptr;
    std::vector<const InspectedTensor*> with, without;
    for (const InspectedTensor& tensor : component_.tensors) {
      if (!IsFp8(tensor.stored->dtype) || !tensor.name.ends_with(".weight")) continue;
      (tensor.weight->parts().empty() ? without : with).push_back(&tensor);
    }
    for (const InspectedTensor* tensor : without) {
      if (marked || !with.empty()) {
        Note(marked ? Severity::kBroken : Severity::kWarning, "missing_scales", tensor->name,
             "fp8 without a scale, though other tensors of this model have one");
      } else {
        Note(Severity::kNote, "plain_fp8", tensor->name,
             "fp8 without scales: the stored numbers are the weights");
      }
    }
  }

  InspectedComponent& component_;
  std::map<const StoredTensor*, InspectedTensor> by_stored_;
  FindingCollector findings_;
};

}  // namespace

void ListTensors(InspectedComponent& component) { Lister(component).Run(); }

}  // namespace qwen_image::inspect
