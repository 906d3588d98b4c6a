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
#include "files/weight_file.h"
#include "inspect/value_statistics.h"
#include "weights/finding.h"
#include "weights/sets.h"
#include "weights/tensor.h"

namespace qwen_image::inspect {

struct Checksum {
  uint64_t low = 0, high = 0;
  // NOLINTNEXTLINE(modernize-use-nullptr): a false alarm of clang-tidy 14
  auto operator<=>(const Checksum&) const = default;
};

// A tensor of a file, as the reader of weights has it (weights/reader.h): the same name, shape and format
// that a loader binds, with the file's own prefixes and spelling.
struct InspectedTensor {
  std::string name;
  const WeightFile* file = nullptr;
  const StoredTensor* stored = nullptr;
  Shape shape;          // of the values: for packed weights the unpacked one
  std::string format;   // "BF16"; for quantized ones "4-bit g64" (groups of 64), "mxfp4", …
  std::string part_of;  // the quantized tensor that these scales or biases belong to; empty for all others
  std::vector<std::string> parts;        // of a quantized tensor: the names of its scales and biases
  int64_t part_bytes = 0;                // and their size
  std::shared_ptr<WeightTensor> weight;  // how it is read; for a part, the numbers of the part

  // What a scan fills in.
  std::vector<Checksum> chunks;
  Checksum checksum;  // of the stored bytes
  std::optional<ValueStatistics> statistics;

  bool quantized() const { return !parts.empty(); }
  bool has_numbers() const { return weight->HasNumbers(); }  // if not, a finding says why
  int64_t bytes() const { return static_cast<int64_t>(stored->bytes.size()); }
  int64_t parameters() const { return part_of.empty() ? ElementCount(shape) : 0; }
};

struct InspectedComponent : WeightSet {
  std::vector<InspectedTensor> tensors = {};  // sorted by name

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

}  // namespace qwen_image::inspect
