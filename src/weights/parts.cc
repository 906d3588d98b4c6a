#include "weights/parts.h"

#include <algorithm>
#include <set>

#include "core/fail.h"
#include "files/json.h"
#include "files/text.h"

namespace qwen_image {
namespace {

constexpr std::string_view kWeight = "weight";
constexpr std::string_view kQuantoData = "._data";

class PartJoiner {
 public:
  explicit PartJoiner(const std::map<std::string, StoredIn>& stored) : stored_(stored) {}

  std::map<std::string, WeightTensor> Run() {
    for (const auto& [name, values] : stored_) {
      const DType dtype = values.tensor->dtype;
      if (name.ends_with(kQuantoData)) JoinQuanto(name, values);
      if (!name.ends_with(".weight")) continue;
      const std::string stem = name.substr(0, name.size() - kWeight.size());  // with its dot
      if (const std::string problem = ComfyProblem(stem, values); !problem.empty()) {
        WeightTensor broken(values);
        broken.set_problem(problem);
        Add(name, std::move(broken));
      } else if (dtype == DType::kU32) {
        JoinMlx(name, stem, values);
      } else if (IsFp8(dtype) || dtype == DType::kI8) {
        JoinScaled(name, stem, values);
      }
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

  void JoinMlx(const std::string& name, const std::string& stem, const StoredIn& packed) {
    const StoredIn *scales = Part(stem + "scales"), *biases = Part(stem + "biases");
    if (!scales || !biases) {
      WeightTensor broken(packed);
      const bool microscaled = scales && scales->tensor->dtype == DType::kU8;
      broken.set_problem(microscaled
                             ? "is packed with 8-bit scales (mxfp4, mxfp8 or nvfp4), which this version does "
                               "not read"
                             : fmt::format("holds packed values (U32), but its .{} are missing",
                                           scales ? "biases" : "scales"));
      return Add(name, std::move(broken));
    }
    auto possible = PossibleMlxQuantizations(packed.tensor->shape, scales->tensor->shape);
    try {
      if (possible.empty()) {
        Fail(ErrorKind::kBadInput, "packed values {} and scales {} fit no number of bits and group size",
             ToString(packed.tensor->shape), ToString(scales->tensor->shape));
      }
      // Types and shapes of the parts are checked here, whichever quantization it will be.
      MlxQuantizedTensor(name, *packed.tensor, *scales->tensor, *biases->tensor, possible[0]);
      Add(name, WeightTensor(packed, *scales, *biases, std::move(possible)));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kBadInput) throw;
      WeightTensor broken(packed);
      broken.set_problem(error.message());
      Add(name, std::move(broken));
    }
  }

  // What ComfyUI's note on a tensor says, if it is a way of storing that is not read here. The note is a
  // tensor beside it, or stands in the file's metadata.
  std::string ComfyProblem(const std::string& stem, const StoredIn& values) {
    Json note;
    if (const StoredIn* part = Part(stem + "comfy_quant")) {
      const auto bytes = part->tensor->bytes;
      note = ParseNote({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    } else if (const Json* found = NoteInMetadata(stem, *values.file)) {
      note = *found;
    } else {
      return "";
    }
    if (note.is_object() && note.contains("convrot") && note["convrot"] != Json(false)) {
      return "is stored rotated (comfy_quant convrot), which this version does not read";
    }
    const Json format = note.is_object() && note.contains("format") ? note["format"] : Json();
    const bool known = format.is_string() && (format.get_ref<const std::string&>().starts_with("float8_") ||
                                              format == "int8_tensorwise");
    if (known) return "";
    return fmt::format("is stored as {} (comfy_quant), which this version does not read",
                       Printable(format.dump(-1, ' ', /*ensure_ascii=*/true), 80));
  }

  const Json* NoteInMetadata(const std::string& stem, const WeightFile& file) {
    const auto [layers, is_new] = metadata_.try_emplace(&file);
    const auto text = file.metadata().find("_quantization_metadata");
    if (is_new && text != file.metadata().end()) {
      const Json json = ParseNote(text->second);
      if (json.is_object() && json.contains("layers")) layers->second = json["layers"];
    }
    if (!layers->second.is_object()) return nullptr;
    for (const char* prefix : {"", "model.diffusion_model.", "diffusion_model."}) {
      const auto found = layers->second.find(prefix + stem.substr(0, stem.size() - 1));
      if (found != layers->second.end()) return &*found;
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
      WeightTensor broken(values);
      broken.set_problem("has quantized values (._data), but its ._scale is missing");
      Add(weight, std::move(broken));
    }
  }

  void JoinScaled(const std::string& name, const std::string& stem, const StoredIn& values) {
    for (const char* part : {"scale_weight", "weight_scale"}) {
      if (const StoredIn* scale = Part(stem + part)) return Add(name, WeightTensor(values, *scale));
    }
    Add(name, WeightTensor(values));
  }

  const std::map<std::string, StoredIn>& stored_;
  std::set<std::string> used_;
  std::map<std::string, WeightTensor> joined_;
  std::map<const WeightFile*, Json> metadata_;  // what ComfyUI notes on the layers of each file
};

}  // namespace

std::map<std::string, WeightTensor> JoinParts(const std::map<std::string, StoredIn>& stored) {
  return PartJoiner(stored).Run();
}

}  // namespace qwen_image
