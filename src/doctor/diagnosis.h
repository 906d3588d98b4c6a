// What a model is, whether it is whole, whether it fits this machine, and what would go wrong with it.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/threads.h"
#include "families/family.h"
#include "qwen_image/cancel.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::doctor {

// A part of the model as it was found.
struct Part {
  std::string name;  // "transformer", "tokenizer", …
  std::filesystem::path path;
  Health health = Health::kGood;
  std::map<std::string, int64_t> formats;  // "BF16" → bytes; of parts with weights
  int64_t parameters = 0;
  int64_t bytes = 0;
  std::string text;  // "60 blocks of 3072", or what is wrong
};

// What drawing a picture of this size takes.
struct PictureCost {
  int64_t width = 0, height = 0;
  int64_t memory = 0;
  bool fits = false;
  double seconds_per_step = 0;  // one pass; guidance takes two
};

struct Diagnosis {
  std::string what;  // in one line
  VariantInfo variant;
  std::vector<Part> parts;
  std::vector<HealthFinding> findings;
  std::vector<PictureCost> pictures;  // only if the model is whole
  std::optional<Defaults> defaults;
  std::string timed_product;  // the kernel that the seconds are estimated from: "int8", "fp32"; may be empty
  int64_t available_memory = 0;

  bool usable() const;  // a picture can be drawn
};

// Reads headers, binds every tensor to its place, and times one matrix product for the estimate; reads no
// other values. Throws for interruption or a bug only: problems of the model are in the result.
Diagnosis Diagnose(const ModelFiles& files, ThreadPool& pool, const CancelFlag& cancel);

}  // namespace qwen_image::doctor
