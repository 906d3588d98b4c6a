// One file of a LoRA: its layers, checked as far as that is possible without the model.
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "families/vocabulary.h"
#include "files/weight_file.h"
#include "weights/tensor.h"

namespace qwen_image::lora {

struct Layer {
  bool flat = false;  // its name has underscores instead of dots
  WeightTensor down;  // [rank, in]
  WeightTensor up;    // [out, rank]
  double factor = 1;  // alpha / rank, as far as the scaled matrices do not hold it

  // Of F16 and BF16 files with an alpha: see alpha.h. Null: the matrix is used as it is in the file.
  using Scaled = std::shared_ptr<const std::vector<std::byte>>;
  Scaled scaled_down = nullptr, scaled_up = nullptr;

  // What the layer computes with. They lie in the file or in the scaled matrices, and need both to live on.
  WeightMatrix Down() const;
  WeightMatrix Up() const;

  int64_t rank() const { return down.shape()[0]; }
  int64_t in() const { return down.shape()[1]; }
  int64_t out() const { return up.shape()[0]; }
};

struct Contents {
  std::unique_ptr<WeightFile> file;
  const Vocabulary* family = nullptr;   // that it is for; null: its layers do not tell
  std::deque<StoredTensor> parts;       // of tensors that are for several layers
  std::map<std::string, Layer> layers;  // by module, diffusers' name or a flat one
  int64_t total = 0;                    // layers, those with a problem too
  std::vector<std::string> problems;    // lines of a message
};

// Throws Error kBadInput for a file that is no LoRA; what is wrong with parts of one is in `problems`.
Contents ReadContents(const std::filesystem::path& path);

// 4 or 8 if the file's name or title says that it is a Lightning LoRA for so many steps; else 0.
int64_t LightningStepsOf(const WeightFile& file);

}  // namespace qwen_image::lora
