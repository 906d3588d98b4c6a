#include "lora/set.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "families/weight_names.h"
#include "files/text.h"
#include "lora/names.h"
#include "weights/files.h"
#include "weights/names.h"
#include "weights/recognize.h"
#include "weights/store.h"

namespace qwen_image::lora {
namespace {

constexpr size_t kMaxLines = 40;  // of a message about one file
constexpr size_t kNearestShown = 3;

// Blocks of a wrong model are many: names of one role make one line.
std::vector<std::vector<std::string>> GroupByRole(const std::vector<std::string>& modules) {
  std::map<std::string, std::vector<std::string>> groups;
  for (const std::string& module : modules) groups[RoleOf(module)].push_back(module);
  std::vector<std::vector<std::string>> result;
  for (auto& [role, names] : groups) result.push_back(std::move(names));
  return result;
}

// The model that a layer's name belongs to, if it is known and another one.
std::string_view OtherModelOf(std::string module) {
  constexpr std::string_view kFlat = "blocks_";  // of flat names, as far as the signs of models go
  if (const size_t at = module.find(kFlat); at != module.npos) module[at + kFlat.size() - 1] = '.';
  return OtherModelWith(module);
}

}  // namespace

Set::Set(const std::vector<LoraFile>& files) {
  for (const LoraFile& file : files) {
    if (!std::isfinite(file.scale)) {
      Fail(ErrorKind::kUsage, "{}: the scale of a LoRA must be a finite number, not {}", file.path.string(),
           file.scale);
    }
    Lora lora{.contents = ReadContents(file.path), .taken = {}};
    AppliedLora report{.name = file.path.filename().string(),
                       .scale = file.scale,
                       .layers = 0,
                       .total = lora.contents.total,
                       .min_rank = 0,
                       .max_rank = 0,
                       .lightning_steps = LightningStepsOf(*lora.contents.file)};
    for (const auto& [module, layer] : lora.contents.layers) {
      report.min_rank = report.min_rank == 0 ? layer.rank() : std::min(report.min_rank, layer.rank());
      report.max_rank = std::max(report.max_rank, layer.rank());
    }
    loras_.push_back(std::move(lora));
    applied_.push_back(std::move(report));
  }
}

const std::vector<LowRankUpdate>& Set::Take(const std::string& module, int64_t out, int64_t in) {
  const auto [entry, is_new] = updates_.try_emplace(module);
  if (!is_new) Fail(ErrorKind::kInternal, "the layer {} is taken twice", Quoted(module));
  const std::string flat_name = FlatName(module);
  for (size_t i = 0; i < loras_.size(); ++i) {
    const auto& layers = loras_[i].contents.layers;
    const auto dotted = layers.find(module), flat = layers.find(flat_name);
    const bool has_flat = flat != layers.end() && flat->second.flat && flat != dotted;
    if (dotted == layers.end() && !has_flat) continue;
    if (dotted != layers.end()) loras_[i].taken.insert(module);
    if (has_flat) loras_[i].taken.insert(flat_name);
    if (dotted != layers.end() && has_flat) {
      loras_[i].contents.problems.push_back(fmt::format("{} is there twice, also as {}", module, flat_name));
      continue;
    }
    const auto update = MakeUpdate(i, module, has_flat ? flat->second : dotted->second, out, in);
    if (!update) continue;
    ++applied_[i].layers;
    if (update->factor != 0) entry->second.push_back(*update);
  }
  return entry->second;
}

// Nothing, and the problem is noted, if the layer does not fit.
std::optional<LowRankUpdate> Set::MakeUpdate(size_t lora, const std::string& module, const Layer& layer,
                                             int64_t out, int64_t in) {
  std::vector<std::string>& problems = loras_[lora].contents.problems;
  if (layer.in() != in || layer.out() != out) {
    problems.push_back(fmt::format(
        "{} is for a layer of {} inputs and {} outputs (down {}, up {}), but the transformer's has "
        "{} and {}",
        module, layer.in(), layer.out(), ToString(layer.down.shape()), ToString(layer.up.shape()), in, out));
    return std::nullopt;
  }
  const auto factor = static_cast<float>(applied_[lora].scale * layer.factor);
  if (!std::isfinite(factor)) {
    problems.push_back(fmt::format("{}: the scale {} times {} (alpha / rank) is too large", module,
                                   applied_[lora].scale, layer.factor));
    return std::nullopt;
  }
  return LowRankUpdate{.down = layer.Down(), .up = layer.Up(), .factor = factor};
}

void Set::TakeAll(const WeightStore& transformer) {
  constexpr std::string_view kWeight = ".weight";
  for (const auto& [name, tensor] : transformer.tensors()) {
    if (!name.ends_with(kWeight) || tensor.shape().size() != 2) continue;
    WeightTensor settled = tensor;
    settled.ChooseQuantization();
    Take(name.substr(0, name.size() - kWeight.size()), settled.shape()[0], settled.shape()[1]);
  }
}

std::vector<std::string> Set::Unmatched(const Lora& lora) const {
  std::vector<std::string> names, modules, lines;
  for (const auto& [name, layer] : lora.contents.layers) {
    if (!lora.taken.contains(name)) names.push_back(name);
  }
  for (const auto& [module, updates] : updates_) modules.push_back(module);
  for (const auto& group : GroupByRole(names)) {
    const std::string name = Printable(FoldedName(group));
    if (lines.size() >= kMaxLines) {  // not shown
      lines.push_back(name);
    } else if (const std::string_view other = OtherModelOf(group[0]); !other.empty()) {
      lines.push_back(fmt::format("{}: the transformer has no such layer; it is one of {}", name, other));
    } else {
      lines.push_back(fmt::format("{}: the transformer has no such layer; nearest: {}", name,
                                  JoinNames(NearestLayers(group[0], modules, kNearestShown))));
    }
  }
  return lines;
}

void Set::Finish() {
  std::string message;
  for (size_t i = 0; i < loras_.size(); ++i) {
    std::vector<std::string> lines = loras_[i].contents.problems;
    const std::vector<std::string> unmatched = Unmatched(loras_[i]);
    lines.insert(lines.end(), unmatched.begin(), unmatched.end());
    if (lines.empty()) continue;
    message += fmt::format("{}{}: this LoRA cannot be applied", message.empty() ? "" : "\n",
                           loras_[i].contents.file->path().string());
    if (const Vocabulary* family = loras_[i].contents.family)
      message += fmt::format("; it is one for {}", family->weights->model);
    if (applied_[i].total > 0)
      message += fmt::format("; {} of {} layers fit the transformer", applied_[i].layers, applied_[i].total);
    for (size_t n = 0; n < std::min(lines.size(), kMaxLines); ++n) message += "\n  " + lines[n];
    if (lines.size() > kMaxLines) message += fmt::format("\n  … and {} more", lines.size() - kMaxLines);
  }
  if (!message.empty()) throw Error(ErrorKind::kBadInput, message);
}

bool Set::Changes(const std::string& module) const {
  const auto found = updates_.find(module);
  return found != updates_.end() && !found->second.empty();
}

void Set::AddTo(const std::string& module, int64_t first_row, int64_t rows, float* values) const {
  const auto found = updates_.find(module);
  if (found == updates_.end()) return;
  for (const LowRankUpdate& update : found->second) {
    const int64_t rank = update.down.rows, in = update.down.cols;
    std::vector<float> down(static_cast<size_t>(rank * in)), up(static_cast<size_t>(rank));
    for (int64_t k = 0; k < rank; ++k) DecodeRow(update.down, k, 0, in, down.data() + k * in);
    for (int64_t r = 0; r < rows; ++r) {
      DecodeRow(update.up, first_row + r, 0, rank, up.data());
      float* const row = values + r * in;
      for (int64_t k = 0; k < rank; ++k) {
        const float amount = update.factor * up[static_cast<size_t>(k)];
        const float* const from = down.data() + k * in;
        for (int64_t c = 0; c < in; ++c) row[c] += amount * from[c];
      }
    }
  }
}

std::vector<const WeightFile*> Set::files() const {
  std::vector<const WeightFile*> files;
  for (const Lora& lora : loras_) files.push_back(lora.contents.file.get());
  return files;
}

int64_t Set::total_bytes() const {
  int64_t total = 0;
  for (const Lora& lora : loras_) {
    total += static_cast<int64_t>(lora.contents.file->file().bytes().size());
    for (const auto& [module, layer] : lora.contents.layers) {
      for (const Layer::Scaled& scaled : {layer.scaled_down, layer.scaled_up}) {
        if (scaled) total += static_cast<int64_t>(scaled->size());
      }
    }
  }
  return total;
}

void Set::ReleasePages() const {
  for (const Lora& lora : loras_) lora.contents.file->file().ReleasePages();
}

void Set::ThrowIfDamaged() const {
  for (const Lora& lora : loras_) lora.contents.file->file().ThrowIfDamaged();
}

}  // namespace qwen_image::lora
