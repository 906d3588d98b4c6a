#include "weights/parts.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "core/fail.h"
#include "families/checkpoint_prefixes.h"
#include "families/renaming.h"
#include "files/json.h"
#include "files/text.h"
#include "weights/fused.h"

namespace qwen_image {
namespace {

constexpr std::string_view kWeight = "weight";
constexpr std::string_view kQuantoData = "._data";

using Problem = TensorProblem::Kind;

class PartJoiner {
 public:
  explicit PartJoiner(const std::map<std::string, StoredIn>& stored) : stored_(stored) {}

  std::map<std::string, WeightTensor> Run() {
    for (const auto& [name, values] : stored_) {
      if (name.ends_with(kQuantoData)) JoinQuanto(name, values);
      if (name.ends_with(".weight")) JoinWeight(name, values);
    }
    for (const auto& [name, values] : stored_) {
      if (!used_.contains(name)) joined_.emplace(name, WeightTensor(values));
    }
    return std::move(joined_);
  }

 private:
  const StoredIn* Part(const std::string& name) {
    const auto found = stored_.find(name);
    if (found == stored_.end()) return nullptr;
    used_.insert(name);
    return &found->second;
  }

  void Add(const std::string& name, WeightTensor tensor) {
    used_.insert(name);
    joined_.emplace(name, std::move(tensor));
  }

  void JoinWeight(const std::string& name, const StoredIn& values) {
    const std::string stem = name.substr(0, name.size() - kWeight.size());  // with its dot
    const StoredIn* note = Part(stem + std::string(kComfyNote));
    const ComfyStorage storage = StorageOf(name, values, note);
    std::optional<WeightTensor> joined;
    if (!storage.problem.empty()) {
      const StoredIn* scale = FindScale(stem);
      joined.emplace(values, scale ? std::vector{*scale} : std::vector<StoredIn>(),
                     TensorProblem{Problem::kNotRead, storage.problem});
    } else if (values.tensor->dtype == DType::kU32) {
      joined = JoinMlx(name, stem, values);
    } else if (IsFp8(values.tensor->dtype) || values.tensor->dtype == DType::kI8 || storage.rotated_group) {
      joined = JoinScaled(stem, values, storage.rotated_group);
    } else {
      return;
    }
    if (note) joined->set_note(*note);
    Add(name, std::move(*joined));
  }

  WeightTensor JoinMlx(const std::string& name, const std::string& stem, const StoredIn& packed) {
    const StoredIn *scales = Part(stem + "scales"), *biases = Part(stem + "biases");
    if (!scales) {
      return {
          packed, biases ? std::vector{*biases} : std::vector<StoredIn>(),
          TensorProblem{Problem::kMissingScales, "holds packed values (U32), but its .scales are missing"}};
    }
    if (!biases && scales->tensor->dtype == DType::kU8) return Microscaled(packed, *scales);
    if (!biases) {
      return {
          packed, std::vector{*scales},
          TensorProblem{Problem::kMissingBiases, "holds packed values (U32), but its .biases are missing"}};
    }
    auto possible = PossibleMlxQuantizations(packed.tensor->shape, scales->tensor->shape);
    try {
      if (possible.empty()) {
        Fail(ErrorKind::kBadInput, "packed values {} and scales {} fit no number of bits and group size",
             ToString(packed.tensor->shape), ToString(scales->tensor->shape));
      }
      // Types and shapes of the parts are checked here, whichever quantization it will be.
      // NOLINTNEXTLINE(bugprone-unused-raii)
      MlxQuantizedTensor(name, *packed.tensor, *scales->tensor, *biases->tensor, possible[0]);
      return {packed, *scales, *biases, std::move(possible)};
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kBadInput) throw;
      return {packed, std::vector{*scales, *biases}, TensorProblem{Problem::kPartsDoNotFit, error.message()}};
    }
  }

  // MLX's "mx" modes: 8-bit scales and no biases.
  static WeightTensor Microscaled(const StoredIn& packed, const StoredIn& scales) {
    struct Mode {
      const char* name;
      int64_t words;  // of a group
      int64_t group_size;
    };
    constexpr Mode kModes[] = {{"mxfp4", 4, 32}, {"mxfp8", 8, 32}, {"nvfp4", 2, 16}};
    const Shape &words = packed.tensor->shape, &groups = scales.tensor->shape;
    for (const Mode& mode : kModes) {
      if (words.empty() || words.size() != groups.size() || groups.back() <= 0) break;
      if (groups.back() > std::numeric_limits<int64_t>::max() / mode.group_size) break;
      if (words.back() % mode.words != 0 || words.back() / mode.words != groups.back()) continue;
      if (!std::equal(words.begin(), words.end() - 1, groups.begin())) continue;
      WeightTensor tensor(packed, std::vector{scales},
                          TensorProblem{Problem::kMicroscaled,
                                        "is packed with 8-bit scales (mxfp4, mxfp8 or nvfp4), which this "
                                        "version does not read"});
      Shape shape = words;
      shape.back() = groups.back() * mode.group_size;
      tensor.Describe(mode.name, std::move(shape));
      return tensor;
    }
    return {packed, std::vector{scales},
            TensorProblem{Problem::kPartsDoNotFit,
                          fmt::format("packed values {} and 8-bit scales {} fit no mode of MLX",
                                      ToString(words), ToString(groups))}};
  }

  // What ComfyUI's note on a tensor says. The note is a tensor beside it, or stands in the file's metadata.
  struct ComfyStorage {
    std::string problem;        // a way of storing that is not read here
    int64_t rotated_group = 0;  // of values that were rotated together; 0: none were
  };
  ComfyStorage StorageOf(const std::string& name, const StoredIn& values, const StoredIn* part) {
    Json note;
    if (part) {
      const auto bytes = part->tensor->bytes;
      note = ParseNote({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    } else if (const Json* found = NoteInMetadata(name, values)) {
      note = *found;
    } else {
      return {};
    }
    const auto field = [&](const char* key) {
      return note.is_object() && note.contains(key) ? note[key] : Json();
    };
    const auto shown = [](const Json& json) {
      return Printable(json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace), 80);
    };
    constexpr std::string_view kInt8 = "int8_tensorwise";
    const Json format = field("format"), rotated = field("convrot");
    const bool known = format == kInt8 ||
                       (format.is_string() && format.get_ref<const std::string&>().starts_with("float8_"));
    if (!known)
      return {fmt::format("is stored as {} (comfy_quant), which this version does not read", shown(format))};
    if (rotated.is_null() || rotated == Json(false)) return {};
    constexpr int64_t kUsualGroup = 256, kMaxGroup = int64_t{1} << 32;
    const Json group = note.contains("convrot_groupsize") ? field("convrot_groupsize") : Json(kUsualGroup);
    if (format != kInt8 || rotated != Json(true) || !group.is_number_integer() || group < 1 ||
        group > kMaxGroup) {
      return {
          fmt::format("is stored rotated (comfy_quant convrot {}, convrot_groupsize {}) as {}, which this "
                      "version does not read",
                      shown(rotated), shown(group), shown(format))};
    }
    return {"", group.get<int64_t>()};
  }

  // Under the name that the layer has in the file, but for a checkpoint's prefix, which may be left out.
  const Json* NoteInMetadata(const std::string& name, const StoredIn& values) {
    const auto [layers, is_new] = metadata_.try_emplace(values.file);
    const auto text = values.file->metadata().find("_quantization_metadata");
    if (is_new && text != values.file->metadata().end()) {
      const Json json = ParseNote(text->second);
      const Json notes = json.is_object() && json.contains("layers") ? json["layers"] : Json();
      if (notes.is_object()) {
        for (const auto& [layer, note] : notes.items())
          layers->second[RemovePrefix(layer, kCheckpointTransformer)] = note;
      }
    }
    const std::string_view stored_name = values.name.empty() ? name : values.name;
    const std::string layer =
        RemovePrefix(std::string(stored_name.substr(0, stored_name.rfind('.'))), kCheckpointTransformer);
    for (const std::string& candidate : {layer, FusedNameOf(layer)}) {
      const auto found = layers->second.find(candidate);
      if (found != layers->second.end()) return &found->second;
    }
    return nullptr;
  }

  static Json ParseNote(std::string_view text) {
    try {
      return ParseJson(text, "comfy_quant");
    } catch (const Error&) {
      return {};
    }
  }

  void JoinQuanto(const std::string& name, const StoredIn& values) {
    const std::string weight = name.substr(0, name.size() - kQuantoData.size());
    used_.insert(name);
    if (const StoredIn* scale = Part(weight + "._scale")) {
      Add(weight, WeightTensor(values, *scale));
    } else {
      Add(weight, {values, std::vector<StoredIn>(),
                   TensorProblem{Problem::kMissingScales,
                                 "has quantized values (._data), but its ._scale is missing"}});
    }
  }

  const StoredIn* FindScale(const std::string& stem) {
    for (const std::string_view part : kScaleNames) {
      if (const StoredIn* scale = Part(stem + std::string(part))) return scale;
    }
    return nullptr;
  }

  WeightTensor JoinScaled(const std::string& stem, const StoredIn& values, int64_t rotated_group) {
    if (const StoredIn* scale = FindScale(stem))
      return rotated_group ? WeightTensor(values, *scale, rotated_group) : WeightTensor(values, *scale);
    if (rotated_group) {
      return {values, std::vector<StoredIn>(),
              TensorProblem{Problem::kMissingScales,
                            "is stored rotated (comfy_quant convrot), but its scale is missing"}};
    }
    WeightTensor tensor(values);
    // An int8 weight without one; plain fp8 numbers are weights as they are.
    if (!tensor.problem().empty()) tensor.set_problem({Problem::kMissingScales, tensor.problem()});
    return tensor;
  }

  const std::map<std::string, StoredIn>& stored_;
  std::set<std::string> used_;
  std::map<std::string, WeightTensor> joined_;
  // What ComfyUI notes on the layers of each file.
  std::map<const WeightFile*, std::map<std::string, Json>> metadata_;
};

}  // namespace

std::map<std::string, WeightTensor> JoinParts(const std::map<std::string, StoredIn>& stored) {
  return PartJoiner(stored).Run();
}

}  // namespace qwen_image
