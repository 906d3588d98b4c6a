// The settings that PEFT keeps of an adapter: how much its layers count (lora_alpha / r).
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "files/json.h"
#include "files/weight_file.h"

namespace qwen_image::lora {

struct Config {
  std::string where;  // for messages
  int64_t r = 8;      // PEFT's defaults
  double lora_alpha = 8;
  bool use_rslora = false;                     // alpha / √r instead of alpha / r
  std::map<std::string, double> rank_pattern;  // of the modules whose names end so, or equal it after a '^'
  std::map<std::string, double> alpha_pattern;

  // What a layer's update is multiplied by. Throws Error kBadInput if its rank is not what is written here.
  double FactorOf(const std::string& module, int64_t rank) const;
};

// From the file's metadata, where diffusers puts it, or from the adapter_config.json beside a file of PEFT's.
// Throws Error kBadInput if it cannot be read or asks for what is not supported.
std::optional<Config> ReadConfig(const WeightFile& file);

}  // namespace qwen_image::lora
