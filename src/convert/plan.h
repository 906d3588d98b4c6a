// What a conversion will write: every tensor, its encoding, its shard.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "convert/encoding_rules.h"
#include "families/component.h"
#include "files/json.h"
#include "weights/store.h"

namespace qwen_image::convert {

struct TensorPlan {
  std::string name;    // diffusers'
  std::string source;  // how the source has it: WeightTensor::Format()
  Shape shape;
  EncodingChoice choice;
  bool copied = false;  // packed in the source as it will be here: the bytes are taken over

  std::vector<PlannedTensor> Stored() const { return StoredTensors(name, shape, choice.encoding); }
  int64_t bytes() const;
};

struct ShardPlan {
  std::string file;  // in the component's folder
  std::vector<TensorPlan> tensors;

  std::vector<PlannedTensor> Stored() const;
  SafetensorsWriter::Metadata Metadata() const;
  int64_t file_bytes() const { return SafetensorsWriter::FileBytes(Stored(), Metadata()); }
};

struct ComponentPlan {
  Component component;
  std::vector<ShardPlan> shards;
  int64_t source_bytes = 0;

  std::string IndexName() const;  // empty if one file holds everything
  Json Index() const;             // which tensor is in which shard, as diffusers writes it
  // MLX's note for config.json; null if nothing is quantized.
  Json Quantization() const;
};

// `store` must be bound to its model: every tensor has its final shape. Throws Error kBadInput for one that
// cannot be read.
ComponentPlan PlanComponent(Component component, const WeightStore& store, EncodingRules& rules,
                            int64_t max_shard_bytes);

// The tensor of `name` in a state that it can be read in. Those that no model takes (a text encoder's
// vision tower) are not settled by their shape, but by their values.
WeightTensor ReadableTensor(const WeightStore& store, const std::string& name);

}  // namespace qwen_image::convert
