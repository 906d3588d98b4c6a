#include "lora/file.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/fail.h"
#include "files/text.h"
#include "lora/alpha.h"
#include "lora/config.h"
#include "lora/names.h"
#include "weights/fused.h"
#include "weights/recognize.h"

namespace qwen_image::lora {
namespace {

// What a file holds of one layer, before anything is checked.
struct Parts {
  std::map<Part, const StoredTensor*> tensors;
  std::map<Part, std::string> names;  // as stored
  bool flat = false;
  std::string stored_module = {};  // where other layers are stored with it: what all of them are called
};

std::string_view NameOf(Part part) {
  return part == Part::kDown ? "down (A)" : part == Part::kUp ? "up (B)" : "alpha";
}

bool AllFinite(const WeightMatrix& matrix) {
  std::vector<float> row(static_cast<size_t>(matrix.cols));
  for (int64_t r = 0; r < matrix.rows; ++r) {
    DecodeRow(matrix, r, 0, matrix.cols, row.data());
    if (!std::all_of(row.begin(), row.end(), [](float v) { return std::isfinite(v); })) return false;
  }
  return true;
}

class LoraReader {
 public:
  explicit LoraReader(const std::filesystem::path& path) { contents_.file = OpenWeightFile(path); }

  Contents Read() {
    contents_.family = FamilyOf(StoredNames(*contents_.file));
    SortTensors();
    DivideFusedLayers();
    RefuseOthers();
    ReadConfig();
    for (const auto& [module, parts] : layers_) {
      try {
        contents_.layers.emplace(module, ReadLayer(module, parts));
      } catch (const Error& error) {  // the others are worth knowing too
        if (error.kind() != ErrorKind::kBadInput) throw;
        contents_.problems.push_back(error.message());
      }
    }
    contents_.total = static_cast<int64_t>(layers_.size());
    return std::move(contents_);
  }

 private:
  void SortTensors() {
    for (const auto& [stored_name, tensor] : contents_.file->tensors()) {
      const std::string_view refused = RefusedAdapterKind(stored_name);
      if (!refused.empty()) {
        refused_[std::string(refused)].push_back(stored_name);
        continue;
      }
      const Vocabulary* family = contents_.family ? contents_.family : Vocabularies()[0];
      const auto name = ParseName(stored_name, *family->weights);
      if (!name) {
        unknown_.push_back(stored_name);
        continue;
      }
      Parts& layer = layers_[name->module];
      layer.flat = name->flat;
      const auto [earlier, is_new] = layer.names.emplace(name->part, stored_name);
      if (is_new) {
        layer.tensors[name->part] = &tensor;
      } else {
        contents_.problems.push_back(fmt::format("{} and {} are the same: {} of {}", Printable(stored_name),
                                                 Printable(earlier->second), NameOf(name->part),
                                                 Printable(name->module)));
      }
    }
  }

  // A layer whose outputs are those of several: each has a part of up's rows, and all of down.
  void DivideFusedLayers() {
    std::map<std::string, Parts> divided;
    for (const auto& [module, parts] : layers_) {
      const std::vector<std::string> modules = PartsOfFused(module, parts.flat);
      const auto up = parts.tensors.find(Part::kUp);
      if (modules.empty() || up == parts.tensors.end() || !CanDivide(*up->second, modules.size())) {
        Keep(module, parts, divided);  // as it is: the message is about what stands in the file
        continue;
      }
      for (size_t i = 0; i < modules.size(); ++i) {
        Parts part = parts;
        part.stored_module = module;
        part.tensors[Part::kUp] = &contents_.parts.emplace_back(PartOf(*up->second, i, modules.size()));
        Keep(modules[i], part, divided);
      }
    }
    layers_ = std::move(divided);
  }

  void Keep(const std::string& module, const Parts& parts, std::map<std::string, Parts>& all) {
    const auto [earlier, is_new] = all.emplace(module, parts);
    if (!is_new)
      contents_.problems.push_back(fmt::format("{} is there twice, as {} and as {}", Printable(module),
                                               Printable(earlier->second.names.begin()->second),
                                               Printable(parts.names.begin()->second)));
  }

  void RefuseOthers() {
    const std::string where = contents_.file->path().string();
    if (layers_.empty() && refused_.empty()) {
      const RecognizedFile found = Recognize(*contents_.file);
      if (!found.components.empty()) {
        Fail(ErrorKind::kBadInput, "{}: a LoRA is expected here, but this is {}; name it as the model", where,
             found.what);
      }
      Fail(ErrorKind::kBadInput,
           "{}: a LoRA is expected here, but none of the file's {} tensors is a part of "
           "one",
           where, contents_.file->tensors().size());
    }
    constexpr size_t kShown = 5;
    for (const auto& [kind, names] : refused_) {
      std::string shown;
      for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
        shown += (i ? ", " : "") + Printable(names[i]);
      if (names.size() > kShown) shown += fmt::format(" and {} more", names.size() - kShown);
      contents_.problems.push_back(
          fmt::format("this is {}, which this version does not apply: {}", kind, shown));
    }
    for (const std::string& name : unknown_)
      contents_.problems.push_back(fmt::format("{} is not a known part of a LoRA", Printable(name)));
  }

  void ReadConfig() {
    try {
      config_ = lora::ReadConfig(*contents_.file);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kBadInput) throw;
      contents_.problems.push_back(error.message());
    }
  }

  Layer ReadLayer(const std::string& module, const Parts& parts) const {
    Layer layer{.flat = parts.flat,
                .down = Matrix(module, parts, Part::kDown),
                .up = Matrix(module, parts, Part::kUp)};
    if (layer.rank() == 0) Fail(ErrorKind::kBadInput, "{} has rank 0", Printable(module));
    if (layer.up.shape()[1] != layer.rank()) {
      Fail(ErrorKind::kBadInput, "{} has shape {}, but {} has {}: their ranks {} and {} differ",
           Printable(parts.names.at(Part::kUp)), ToString(layer.up.shape()),
           Printable(parts.names.at(Part::kDown)), ToString(layer.down.shape()), layer.up.shape()[1],
           layer.rank());
    }
    // Also because rows without values could be so many that looking at each would never end.
    if (layer.in() == 0 || layer.out() == 0) {
      Fail(ErrorKind::kBadInput, "{} holds nothing: down has shape {}, up {}", Printable(module),
           ToString(layer.down.shape()), ToString(layer.up.shape()));
    }
    CheckFinite(parts.names.at(Part::kDown), layer.down);
    CheckFinite(parts.names.at(Part::kUp), layer.up);
    if (const auto alpha = AlphaOverRank(parts, layer.rank())) ApplyAlpha(module, *alpha, layer);
    ApplyConfig(parts.stored_module.empty() ? module : parts.stored_module, layer);
    return layer;
  }

  static const StoredTensor& Find(const std::string& module, const Parts& parts, Part part) {
    const auto found = parts.tensors.find(part);
    if (found == parts.tensors.end()) {
      Fail(ErrorKind::kBadInput, "{} has no {} matrix, only {}", Printable(module), NameOf(part),
           Printable(parts.names.begin()->second));
    }
    return *found->second;
  }

  WeightTensor Matrix(const std::string& module, const Parts& parts, Part part) const {
    WeightTensor tensor(StoredIn{&Find(module, parts, part), contents_.file.get()});
    const std::string& name = parts.names.at(part);
    if (tensor.shape().size() > 2) {
      Fail(ErrorKind::kBadInput,
           "{} has shape {}: a LoRA for convolutions, which this version does not apply", Printable(name),
           ToString(tensor.shape()));
    }
    if (tensor.shape().size() != 2) {
      Fail(ErrorKind::kBadInput, "{} has shape {}, expected {}", Printable(name), ToString(tensor.shape()),
           part == Part::kDown ? "[rank, in]" : "[out, rank]");
    }
    if (!tensor.problem().empty()) Fail(ErrorKind::kBadInput, "{} {}", Printable(name), tensor.problem());
    return tensor;
  }

  static void CheckFinite(const std::string& name, const WeightTensor& tensor) {
    std::vector<float> row(static_cast<size_t>(tensor.row_size()));
    for (int64_t r = 0; r < tensor.rows(); ++r) {
      tensor.ReadRows(r, 1, row.data());
      const auto bad = std::find_if(row.begin(), row.end(), [](float v) { return !std::isfinite(v); });
      if (bad == row.end()) continue;
      Fail(ErrorKind::kBadInput, "{} holds {} at [{}, {}], expected finite numbers", Printable(name), *bad, r,
           bad - row.begin());
    }
  }

  // alpha / rank, if an alpha stands beside the layer.
  std::optional<double> AlphaOverRank(const Parts& parts, int64_t rank) const {
    const auto found = parts.tensors.find(Part::kAlpha);
    if (found == parts.tensors.end()) return std::nullopt;
    const WeightTensor alpha(StoredIn{found->second, contents_.file.get()});
    const std::string name = Printable(parts.names.at(Part::kAlpha));
    if (!alpha.problem().empty()) Fail(ErrorKind::kBadInput, "{} {}", name, alpha.problem());
    if (ElementCount(alpha.shape()) != 1) {
      Fail(ErrorKind::kBadInput, "{} has shape {}, expected one number", name, ToString(alpha.shape()));
    }
    const float value = alpha.Values()[0];
    if (!std::isfinite(value)) Fail(ErrorKind::kBadInput, "{} is {}, expected a finite number", name, value);
    return static_cast<double>(value) / static_cast<double>(rank);
  }

  // What was rounded becomes a matrix of its own; what was not stays a factor.
  void ApplyAlpha(const std::string& module, double alpha_over_rank, Layer& layer) const {
    if (alpha_over_rank <= 0) {
      layer.factor = alpha_over_rank;
      return;
    }
    const AlphaScales scales = SplitAlpha(alpha_over_rank);
    const auto apply = [&](const WeightTensor& matrix, double scale, Layer::Scaled& scaled) {
      const DType dtype = matrix.stored().tensor->dtype;
      const bool rounds = dtype == DType::kF16 || dtype == DType::kBF16;
      if (rounds) scaled = ScaledMatrix(matrix, scale);
      if (!scaled) layer.factor *= scale;
    };
    apply(layer.down, scales.down, layer.scaled_down);
    apply(layer.up, scales.up, layer.scaled_up);
    if ((layer.scaled_down && !AllFinite(layer.Down())) || (layer.scaled_up && !AllFinite(layer.Up()))) {
      Fail(ErrorKind::kBadInput, "{}: its numbers times {} (alpha / rank) are too large for their type",
           Printable(module), alpha_over_rank);
    }
  }

  // diffusers multiplies what both say: the tensor beside a layer, and the settings of the whole adapter.
  void ApplyConfig(const std::string& module, Layer& layer) const {
    if (!config_) return;
    try {
      layer.factor *= config_->FactorOf(module, layer.rank());
    } catch (const Error& error) {
      Fail(error.kind(), "{} {}", Printable(module), error.message());
    }
  }

  Contents contents_;
  std::map<std::string, Parts> layers_;                      // by module
  std::map<std::string, std::vector<std::string>> refused_;  // names by kind
  std::vector<std::string> unknown_;
  std::optional<Config> config_;
};

}  // namespace

WeightMatrix Layer::Down() const {
  WeightMatrix matrix = down.Matrix();
  if (scaled_down) matrix.data = scaled_down->data();
  return matrix;
}

WeightMatrix Layer::Up() const {
  WeightMatrix matrix = up.Matrix();
  if (scaled_up) matrix.data = scaled_up->data();
  return matrix;
}

Contents ReadContents(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    Fail(ErrorKind::kBadInput, "{} is a folder; name the LoRA's file in it", path.string());
  }
  if (!std::filesystem::exists(path, error)) {
    Fail(ErrorKind::kBadInput, "there is no {}; a LoRA's file is expected", path.string());
  }
  return LoraReader(path).Read();
}

int64_t LightningStepsOf(const WeightFile& file) {
  if (const int64_t steps = LightningSteps(file.path().filename().string())) return steps;
  for (const char* key : {"modelspec.title", "ss_output_name", "title", "name"}) {
    const auto found = file.metadata().find(key);
    const int64_t steps = found == file.metadata().end() ? 0 : LightningSteps(found->second);
    if (steps) return steps;
  }
  return 0;
}

}  // namespace qwen_image::lora
