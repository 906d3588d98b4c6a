// The names of a family's weights: in its own files, and in those that other tools write. What a family's
// files are recognised by and what their configs say.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "families/component.h"
#include "files/json.h"

namespace qwen_image {

// Brings a name in a file to the family's own name of the tensor (diffusers' or transformers'). Empty text
// for a tensor of another component in the same file.
using Renamer = std::function<std::string(std::string_view stored_name)>;

// A tensor that a component always has: it tells the component, and the family.
struct ComponentSign {
  Component component;
  std::string_view tensor;
  std::string_view what;  // for people: "the transformer of a Qwen-Image model"
};

// How the names of a component's tensors begin: a file with such a name is one of it, whatever else is wrong.
struct ComponentBeginning {
  Component component;
  std::string_view beginning;
};

// What the config.json of a component's folder says of its class.
struct ConfigClass {
  Component component;
  std::string_view key;    // "_class_name"
  std::string_view value;  // "QwenImageTransformer2DModel"
  bool may_go_on = false;  // the value may be the beginning of a longer name
};

// Modules whose weights other tools store in one matrix, one below the other, in equal parts.
struct FusedRows {
  std::string_view whole;                   // the end of its name: ".img_mlp.gate_up"
  std::span<const std::string_view> parts;  // of theirs, in the order of the rows
};

// What a tensor is for. The first role of its component that fits counts.
struct WeightRole {
  Component component;
  std::string_view glob, name;  // "*.attn.*", "attention"
  bool eight_bits = false;      // not less, if it is quantized: all pixels or tokens pass through it
};

// The number of modules in a list, as a config gives it.
struct BlockCount {
  std::string_view list;     // the end of the list's name: "transformer_blocks"
  std::string_view section;  // of the config; empty: the config itself
  std::string_view key;      // "num_layers"
};

// Tensors that may be all zero although the model is whole.
struct ZerosReason {
  std::string_view glob;  // of the tensors' names, in files of any tool
  std::string_view text;  // of the finding
};

// Tensors that a model may share on purpose: globs of both names.
struct TiedTensors {
  std::string_view one, other;
};

// What a family does not have stays empty; the three functions must be there.
struct WeightNames {
  std::string_view model;  // for messages: "Qwen-Image"

  // The names of one set of files. Some tools number modules of several levels in one list; where a level
  // ends, `config` tells (config.json, or null), else all `stored_names` together do.
  Renamer (*renamer)(Component component, std::span<const std::string_view> stored_names, const Json& config);
  std::span<const std::string_view> markers;  // tensors that only say something about the file
  std::span<const FusedRows> fused = {};

  std::span<const ComponentSign> signs;
  std::string_view vision_sign = {};  // a tensor that no other family's vision tower has
  // Linear layers that no other family's transformer has, as globs: they tell whose a LoRA is.
  std::span<const std::string_view> own_layers = {};
  // What GGUF files of the text encoder call its architecture, where a mere language model has all the same
  // tensors; empty: nothing is expected.
  std::string_view text_encoder_architecture = {};
  std::span<const ComponentBeginning> beginnings;
  std::span<const ConfigClass> config_classes;
  // Whether a config that lies beside a single file is one of this component.
  bool (*describes)(Component component, const Json& config);

  std::span<const WeightRole> roles;
  std::string_view example_glob;  // for messages: "*.img_mod.1.weight"
  std::span<const BlockCount> block_counts;
  // The shape of a tensor that no model binds and that GGUF may have folded; empty: it is as it should be.
  // `rows_of` gives the first dimension of another tensor, `values` is the number of its own.
  std::vector<int64_t> (*unbound_shape)(std::string_view name, int64_t values,
                                        const std::function<int64_t(const std::string&)>& rows_of);
  // Why a tensor may be all zero in a whole model.
  std::span<const ZerosReason> reasons_for_zeros;
  std::span<const TiedTensors> tied;

  // What model_index.json may name as the class of the pipeline.
  std::span<const std::string_view> pipeline_classes;
  // Those whose prompt speaks of the pictures that they are given.
  std::span<const std::string_view> edit_classes;
};

}  // namespace qwen_image
