// Where the config files of two models or components differ: equal weights alone do not make equal models.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace qwen_image::inspect {

struct ConfigDifference {
  std::string file;  // "vae/config.json"
  std::string text;  // "only in A", or the keys: "num_res_blocks, z_dim"
};

// Compares model_index.json, qwen_image.json and all *config.json of two folders and of the folders in them,
// as JSON: blanks and the order of keys are no difference. A single file has no configs to compare.
std::vector<ConfigDifference> DiffConfigs(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace qwen_image::inspect
