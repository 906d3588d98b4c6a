#include "weights/inspect/quantized_parts.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "core/fail.h"
#include "weights/inspect/finding_collector.h"

namespace qwen_image {
namespace {

std::string Describe(const MlxQuantization& q) { return fmt::format("{}-bit g{}", q.bits, q.group_size); }

std::string Describe(const std::vector<MlxQuantization>& candidates) {
  std::string text;
  for (const MlxQuantization& q : candidates) text += (text.empty() ? "" : " or ") + Describe(q);
  return text;
}

class Resolver {
 public:
  explicit Resolver(InspectedComponent& component) : component_(component) {}

  void Run() {
    for (InspectedTensor& tensor : component_.tensors) {
      if (tensor.stored->dtype == DType::kU32 && tensor.name.ends_with(".weight")) {
        ResolvePacked(tensor);
      } else if (IsFp8(tensor.stored->dtype) && tensor.name.ends_with(".weight")) {
        ResolveFp8(tensor);
      }
    }
    for (InspectedTensor& tensor : component_.tensors) {
      // Packed words that could not be resolved are no numbers; everything else is.
      const bool packed = tensor.stored->dtype == DType::kU32 && tensor.name.ends_with(".weight");
      if (tensor.values || packed) continue;
      if (WeightValues::CanRead(tensor.stored->dtype)) {
        tensor.values = std::make_shared<WeightValues>(*tensor.stored);
      } else {
        Note(Severity::kWarning, "unknown_type", tensor.name,
             fmt::format("is stored as {}, which is not read here: no statistics",
                         NameOf(tensor.stored->dtype)));
      }
    }
    ReportOrphans();
    ReportFp8();
    findings_.MoveTo(component_.findings);
  }

 private:
  static std::string Stem(const InspectedTensor& tensor) {
    return tensor.name.substr(0, tensor.name.size() - std::string_view("weight").size());  // with its dot
  }

  void Note(Severity severity, const char* kind, const std::string& name, const std::string& text) {
    findings_.Add(severity, kind, name, text);
  }

  void Join(InspectedTensor& tensor, InspectedTensor* part) {
    if (!part) return;
    part->part_of = tensor.name;
    tensor.parts.push_back(part->name);
    tensor.part_bytes += part->bytes();
  }

  void ResolvePacked(InspectedTensor& tensor) {
    InspectedTensor* scales = component_.Find(Stem(tensor) + "scales");
    InspectedTensor* biases = component_.Find(Stem(tensor) + "biases");
    tensor.format = "U32 packed";
    if (!scales) {
      Join(tensor, biases);
      return Note(Severity::kBroken, "missing_scales", tensor.name,
                  "packed (U32) weights without .scales: they cannot be turned back into numbers");
    }
    Join(tensor, scales);
    if (scales->stored->dtype == DType::kU8) return ResolveMicroscaled(tensor, *scales);
    if (!biases) {
      return Note(
          Severity::kBroken, "missing_biases", tensor.name,
          "packed (U32) weights with .scales but without .biases: they cannot be turned back into numbers");
    }
    Join(tensor, biases);
    ResolveAffine(tensor, *scales, *biases);
  }

  void ResolveAffine(InspectedTensor& tensor, const InspectedTensor& scales, const InspectedTensor& biases) {
    tensor.possible = PossibleMlxQuantizations(tensor.stored->shape, scales.stored->shape);
    if (tensor.possible.empty()) {
      return Note(Severity::kBroken, "parts_do_not_fit", tensor.name,
                  fmt::format("packed weights {} and scales {} fit no number of bits and group size of MLX",
                              ToString(tensor.stored->shape), ToString(scales.stored->shape)));
    }
    try {
      auto chosen = LikelyMlxQuantization(tensor.name, *tensor.stored, *scales.stored, *biases.stored);
      if (!chosen) chosen = FromConfig(tensor);
      if (!chosen) {
        tensor.format = "packed";
        // Still told apart by its error if it does not fit at all.
        MlxQuantizedTensor(tensor.name, *tensor.stored, *scales.stored, *biases.stored, tensor.possible[0]);
        return Note(Severity::kNote, "ambiguous_quantization", tensor.name,
                    fmt::format("the shapes fit {}, and there are too few values to tell: no statistics",
                                Describe(tensor.possible)));
      }
      MlxQuantizedTensor unpacked(tensor.name, *tensor.stored, *scales.stored, *biases.stored, *chosen);
      tensor.shape = unpacked.shape();
      tensor.format = Describe(*chosen);
      tensor.values = std::make_shared<WeightValues>(std::move(unpacked));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kBadInput) throw;
      tensor.possible.clear();
      Note(Severity::kBroken, "parts_do_not_fit", tensor.name, error.message());
    }
  }

  // What config.json ({"quantization": {"bits", "group_size"}}) or the file's metadata say, if it fits.
  std::optional<MlxQuantization> FromConfig(const InspectedTensor& tensor) const {
    int bits = 0, group_size = 0;
    if (component_.config.is_object()) {
      const Json q = component_.config.value("quantization", Json());
      if (q.is_object()) {
        const auto number = [&](const char* key) {
          const auto found = q.find(key);
          return found != q.end() && found->is_number_unsigned() && *found < 1000 ? found->get<int>() : 0;
        };
        bits = number("bits");
        group_size = number("group_size");
      }
    }
    const auto level = tensor.file->metadata().find("quantization_level");  // as mflux writes it
    if (bits == 0 && level != tensor.file->metadata().end()) {
      std::from_chars(level->second.data(), level->second.data() + level->second.size(), bits);
    }
    for (const MlxQuantization& candidate : tensor.possible) {
      const bool same_group = group_size == 0 || candidate.group_size == group_size;
      if (candidate.bits == bits && same_group) return candidate;
    }
    return std::nullopt;
  }

  // The "mx" modes: 8-bit scales and no biases.
  void ResolveMicroscaled(InspectedTensor& tensor, const InspectedTensor& scales) {
    struct Mode {
      const char* name;
      int64_t words;  // of a group
      int64_t group_size;
    };
    constexpr Mode kModes[] = {{"mxfp4", 4, 32}, {"mxfp8", 8, 32}, {"nvfp4", 2, 16}};
    const Shape &packed = tensor.stored->shape, &groups = scales.stored->shape;
    for (const Mode& mode : kModes) {
      if (packed.empty() || packed.size() != groups.size() || groups.back() <= 0) break;
      if (groups.back() > std::numeric_limits<int64_t>::max() / mode.group_size) break;
      if (packed.back() % mode.words != 0 || packed.back() / mode.words != groups.back()) continue;
      if (!std::equal(packed.begin(), packed.end() - 1, groups.begin())) continue;
      tensor.format = mode.name;
      tensor.shape.back() = groups.back() * mode.group_size;
      return Note(Severity::kNote, "no_statistics", tensor.name,
                  fmt::format("{} weights: recognised by their shapes, but their values are not computed",
                              mode.name));
    }
    Note(Severity::kBroken, "parts_do_not_fit", tensor.name,
         fmt::format("packed weights {} and 8-bit scales {} fit no mode of MLX", ToString(packed),
                     ToString(groups)));
  }

  void ResolveFp8(InspectedTensor& tensor) {
    InspectedTensor* scale = nullptr;
    for (const char* name : {"scale_weight", "weight_scale", "weight_scale_inv", "scale"}) {
      if (!scale) scale = component_.Find(Stem(tensor) + name);
    }
    if (!scale) return;
    Join(tensor, scale);
    tensor.format += " ×s";
    double factor = 1;
    const WeightValues values(*scale->stored);
    if (values.count() == 1) {
      values.Read(0, 1, &factor);
      tensor.values = std::make_shared<WeightValues>(*tensor.stored, factor);
    } else {
      Note(Severity::kNote, "fp8_unscaled_statistics", tensor.name,
           "its scale is a tensor; the statistics are of the fp8 values before scaling");
    }
  }

  // .scales or .biases with nothing to scale.
  void ReportOrphans() {
    for (const InspectedTensor& tensor : component_.tensors) {
      const bool looks = tensor.name.ends_with(".scales") || tensor.name.ends_with(".biases");
      if (!looks || !tensor.part_of.empty()) continue;
      const std::string stem = tensor.name.substr(0, tensor.name.rfind('.') + 1);
      const InspectedTensor* weight = component_.Find(stem + "weight");
      if (component_.is_shard && !weight) continue;
      Note(Severity::kBroken, "orphaned_part", tensor.name,
           weight ? fmt::format("belongs to packed (U32) weights, but its .weight is {}",
                                NameOf(weight->stored->dtype))
                  : "belongs to packed weights, but there is no .weight beside it");
    }
  }

  // fp8 with scales here and none there.
  void ReportFp8() {
    const bool marked = component_.Find("scaled_fp8") != nullptr;  // ComfyUI's sign that scales are expected
    std::vector<const InspectedTensor*> with, without;
    for (const InspectedTensor& tensor : component_.tensors) {
      if (!IsFp8(tensor.stored->dtype) || !tensor.name.ends_with(".weight")) continue;
      (tensor.quantized() ? with : without).push_back(&tensor);
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
  FindingCollector findings_;
};

}  // namespace

void ResolveQuantized(InspectedComponent& component) { Resolver(component).Run(); }

}  // namespace qwen_image
