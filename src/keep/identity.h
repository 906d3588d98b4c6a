// Identities: hashes of all that decides the numbers of a run, such as the engine, its kernels and the
// weights. What a run keeps on disk is used by later runs of the same identity only.
#pragma once

#include <map>
#include <string>

#include "families/model.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::keep {

// Version, sources, compiler and instruction set: another build may compute other bits.
std::string EngineIdentity();

// Of what is in a file with weights, wherever it lies: size, everything before the first tensor, and 64 bytes
// at each of 256 places over the file.
std::string FingerprintOf(const WeightFile& file);
// Of files with weights, without reading them as a whole: the fingerprint and both times of the last
// change. A file that was swapped for
// another shows in the time of its last change of status, which no program can set; the rest is for file
// systems without one.
std::string IdentityOf(const WeightFile& file);
// Of all files and the config that a component was loaded from.
std::string IdentityOf(const WeightStore& store);

// The identities of a model's components: whatever decides, besides its inputs, what a component computes;
// without LoRAs. Each is computed when it is first asked for.
class Identities {
 public:
  // `model` must outlive this object.
  Identities(const Model& model, Device device, Precision precision)
      : model_(model), device_(device), precision_(precision) {}

  // Throws Error kBadInput for a vision encoder that is not there.
  const std::string& Of(Component component);
  const Model& model() const { return model_; }

 private:
  const Model& model_;
  Device device_;
  Precision precision_;
  std::map<Component, std::string> known_;
};

}  // namespace qwen_image::keep
