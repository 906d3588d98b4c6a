// Converting a model: from any form that can be read to a folder in diffusers' layout, in another encoding.
//
//   1 find the parts, check every name and shape      4 convert shard by shard, measure each tensor
//   2 plan: encodings, shards, sizes                  5 configs, tokenizer, scheduler, report
//   3 the working folder: new, or continued           6 the folder appears under its name
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "convert/encoding_rules.h"
#include "convert/report.h"
#include "families/component.h"
#include "qwen_image/cancel.h"
#include "qwen_image/model_files.h"

namespace qwen_image::convert {

struct Options {
  Target to;
  int group_size = 64;              // of quantized tensors
  std::vector<EncodingRule> rules;  // beside those of EncodingRules
  std::vector<Component> only;      // empty: a whole model
  int64_t max_shard_bytes = 5'000'000'000;
  bool overwrite = false;
  int threads = 0;  // 0: all processors this process may use
};

struct Progress {
  int64_t done_bytes = 0, total_bytes = 0;  // of the source
  int64_t continued_bytes = 0;              // of `done_bytes`, what an earlier run did
  Component component = Component::kTransformer;
};

struct Result {
  std::vector<ConvertedTensor> tensors;
  std::vector<std::string> notes;
  size_t files = 0;      // with weights
  size_t continued = 0;  // of them, what an earlier run had finished
};

// Writes the folder `target`, which must not be there yet, or be a model to overwrite. Throws Error:
// kBadInput for a source that is not whole, kCannotWrite, kInterrupted (the same call continues), kUsage.
Result ConvertModel(const ModelFiles& source, const std::filesystem::path& target, const Options& options,
                    const CancelFlag& cancel, const std::function<void(const Progress&)>& on_progress = {});

}  // namespace qwen_image::convert
