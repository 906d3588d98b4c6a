// Set: the LoRAs that a transformer is run with. Each one adds up · down, times a factor, to the weights
// of linear layers. A model tells of its layers one by one and gets what is added to them; Finish() then
// throws one error with all that is wrong in any file, so that a LoRA never does less than it was meant to.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lora/file.h"
#include "qwen_image/model_files.h"
#include "weights/updates.h"

namespace qwen_image {
class WeightStore;
}

namespace qwen_image::lora {

class Set final : public WeightUpdates {
 public:
  Set() = default;
  // Opens the files; they stay mapped. Throws Error kBadInput for a file that is no LoRA, kUsage for a scale
  // that is no number.
  explicit Set(const std::vector<LoraFile>& files);

  const std::vector<LowRankUpdate>& Take(const std::string& module, int64_t out, int64_t in) override;
  // Takes every matrix of a transformer's weights, for callers that do not run it.
  void TakeAll(const WeightStore& transformer);
  // The error lists every problem of every file: layers that the model does not have (with the names most
  // like theirs), that have another size, or that are broken.
  void Finish() override;

  // What was applied, in the order of the files.
  const std::vector<AppliedLora>& applied() const { return applied_; }
  bool empty() const { return loras_.empty(); }
  std::vector<const WeightFile*> files() const;  // in the same order

  bool Changes(const std::string& module) const;  // a layer that was taken before

  // Adds to rows [first_row, first_row + rows) of a layer's weight what the LoRAs add to it; `values` is
  // [rows, in]. The layer was taken before. Every call decodes the down matrices: best for many rows at once.
  void AddTo(const std::string& module, int64_t first_row, int64_t rows, float* values) const;

  int64_t total_bytes() const;  // of all mapped files, and of matrices made from them
  void ReleasePages() const;    // see MappedFile
  void ThrowIfDamaged() const;  // see WeightStore

 private:
  struct Lora {
    Contents contents;
    std::set<std::string> taken;  // of contents.layers
  };
  std::optional<LowRankUpdate> MakeUpdate(size_t lora, const std::string& module, const Layer& layer,
                                          int64_t out, int64_t in);
  std::vector<std::string> Unmatched(const Lora& lora) const;

  std::vector<Lora> loras_;
  std::vector<AppliedLora> applied_;                           // beside loras_
  std::map<std::string, std::vector<LowRankUpdate>> updates_;  // by module; empty for most
};

}  // namespace qwen_image::lora
