// LoraSet: the LoRAs that a transformer is run with. Each one adds up · down, times a factor, to the weights
// of linear layers. A model tells of its layers one by one and gets what is added to them; Finish() then
// throws one error with all that is wrong in any file, so that a LoRA never does less than it was meant to.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernels/weight_matrix.h"
#include "qwen_image/model_files.h"
#include "weights/lora_file.h"

namespace qwen_image {

class WeightStore;

// A linear layer's weight becomes W + factor · up · down, without being changed itself: it may be quantized.
struct LowRankUpdate {
  WeightMatrix down;  // [rank, in]
  WeightMatrix up;    // [out, rank]
  float factor = 1;   // the user's scale · alpha / rank
};

class LoraSet {
 public:
  LoraSet() = default;
  // Opens the files; they stay mapped. Throws Error kBadInput for a file that is no LoRA, kUsage for a scale
  // that is no number.
  explicit LoraSet(const std::vector<LoraFile>& files);

  // What all LoRAs add to the linear layer `module`, whose weight is [out, in].
  const std::vector<LowRankUpdate>& Take(const std::string& module, int64_t out, int64_t in);
  // Does that for every matrix of a transformer's weights: for those who do not run it.
  void TakeAll(const WeightStore& transformer);
  // To be called when every layer was taken. Throws Error kBadInput that lists every problem of every file:
  // layers that the model does not have (with the names most like theirs), that have another size, or that
  // are broken.
  void Finish();

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
    LoraContents contents;
    std::set<std::string> taken;  // of contents.layers
  };
  std::optional<LowRankUpdate> MakeUpdate(size_t lora, const std::string& module, const LoraLayer& layer,
                                          int64_t out, int64_t in);
  std::vector<std::string> Unmatched(const Lora& lora) const;

  std::vector<Lora> loras_;
  std::vector<AppliedLora> applied_;                           // beside loras_
  std::map<std::string, std::vector<LowRankUpdate>> updates_;  // by module; empty for most
};

}  // namespace qwen_image
