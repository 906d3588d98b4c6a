// Sets of weights: the files that together hold the tensors of one component. The loader opens one set, and
// `inspect` all that it finds; both open them here.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "files/json.h"
#include "files/weight_file.h"
#include "weights/finding.h"

namespace qwen_image {

struct WeightSet {
  std::string name;            // "transformer"; of a single file its stem
  std::filesystem::path path;  // the folder or file
  Json config = nullptr;       // config.json of the folder, or null
  bool is_shard = false;       // one file of a model in several: others hold the rest
  std::vector<std::unique_ptr<WeightFile>> files = {};
  std::vector<Finding> findings = {};  // what is wrong with the files: absent, unreadable, a tensor in two …
};

// None of these throws for what is wrong with a file: it becomes a finding, and the rest is opened.
WeightSet OpenSingleFile(const std::filesystem::path& file, std::string name);
WeightSet OpenShards(const std::filesystem::path& folder, const std::string& index);

// All sets at `path`: a safetensors or GGUF file, a folder with one set of weights or several, or a whole
// model. Throws Error kBadInput only if nothing can be read.
std::vector<WeightSet> OpenAllSets(const std::filesystem::path& path);

}  // namespace qwen_image
