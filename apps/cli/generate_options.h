// What the user of `generate` and of `edit` typed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "command.h"
#include "machine_options.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::cli {

constexpr int64_t kMaxPictures = 10000;  // of one run
constexpr int64_t kDefaultQuality = 95;  // of JPEG and WebP pictures

struct GenerateOptions {
  bool edit = false;  // the command
  // The settings (options/field.h) that were typed or taken from elsewhere, and their names. Of pictures and
  // noise only the names of the files: MakeRequest reads them.
  GenerateRequest request;
  std::set<std::string, std::less<>> given;
  std::map<std::string, std::vector<std::filesystem::path>, std::less<>> files;
  bool random_seed = false;
  std::string size;  // WIDTHxHEIGHT; empty: not said

  std::filesystem::path prompts_file;
  std::filesystem::path from;
  std::filesystem::path output;
  std::optional<int64_t> output_compression;  // of JPEG and WebP
  bool no_source_mark = false;
  int64_t count = 1;
  std::string shard;  // I/N: which of the pictures; empty: all
  ModelFiles model;   // what was named; see FindModel
  MachineOptions machine;
  std::filesystem::path prompt_cache;  // empty: the user's cache folder
  bool no_prompt_cache = false;
  bool quiet = false;
  bool json = false;
  std::filesystem::path profile;  // empty: none

  bool Given(std::string_view name) const { return given.contains(name); }
  // Of a setting that is data.
  const std::vector<std::filesystem::path>& Files(std::string_view name) const;
};

Option SourceMarkOption(bool& no_source_mark, const char* group = "");

// All options of generate and edit. `edit` says which of the two it is.
OptionList GenerateOptionList(GenerateOptions& options);

}  // namespace qwen_image::cli
