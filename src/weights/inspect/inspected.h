// What an inspection of weights holds: components, their tensors, what was measured and what was found.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "files/json.h"
#include "files/weight_file.h"
#include "weights/inspect/value_statistics.h"
#include "weights/inspect/values.h"

namespace qwen_image {

enum class Severity {
  kNote,     // worth knowing, often intended
  kWarning,  // unusual
  kBroken,   // such a model cannot work
};

struct Finding {
  Severity severity = Severity::kNote;
  std::string kind;     // "all_zero", "missing_blocks", …: for tools
  std::string subject;  // the tensors, folded: "transformer_blocks.{0…59}.attn.to_q.bias"; or a file
  std::string text;     // what is unusual, and why that may be
  std::vector<std::string> tensors;
};

struct Checksum {
  uint64_t low = 0, high = 0;
  auto operator<=>(const Checksum&) const = default;
};

struct InspectedTensor {
  std::string name;
  const WeightFile* file = nullptr;
  const StoredTensor* stored = nullptr;
  Shape shape;          // of the values: for packed weights the unpacked one
  std::string format;   // "BF16"; for quantized ones "4-bit g64" (groups of 64), "mxfp4", …
  std::string part_of;  // the quantized tensor that these scales or biases belong to; empty for all others
  std::vector<std::string> parts;              // of a quantized tensor: the names of its scales and biases
  int64_t part_bytes = 0;                      // and their size
  std::vector<MlxQuantization> possible;       // of packed weights: all that fit the shapes
  std::shared_ptr<const WeightValues> values;  // null: they cannot be computed; a finding says why

  // What a scan fills in.
  std::vector<Checksum> chunks;
  Checksum checksum;  // of the stored bytes
  std::optional<ValueStatistics> statistics;

  bool quantized() const { return !parts.empty(); }
  int64_t bytes() const { return static_cast<int64_t>(stored->bytes.size()); }
  int64_t parameters() const { return part_of.empty() ? ElementCount(shape) : 0; }
};

struct InspectedComponent {
  std::string name;            // "transformer"; of a single file its stem
  std::filesystem::path path;  // the folder or file
  Json config;                 // config.json of the folder, or null
  bool is_shard = false;       // one file of a model in several: others hold the rest
  std::vector<std::unique_ptr<WeightFile>> files;
  std::vector<InspectedTensor> tensors;  // sorted by name
  std::vector<Finding> findings;

  const InspectedTensor* Find(std::string_view tensor) const;
  InspectedTensor* Find(std::string_view tensor);
  int64_t parameters() const;
  int64_t bytes() const;  // of the tensors
  bool is_lora() const;
};

// The result of reading again what was read before.
struct SecondReading {
  int64_t bytes = 0;                     // read again
  int64_t total_bytes = 0;               // there were
  std::vector<std::string> differences;  // tensors that gave other bytes
};

struct Inspection {
  std::filesystem::path path;
  std::vector<InspectedComponent> components;
  std::optional<SecondReading> second_reading;

  bool broken() const;  // there is a finding of this severity
};

}  // namespace qwen_image
