// What of the catalogue is downloaded, what this machine could have, and the files of a model that is here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "catalogue/catalogue.h"
#include "qwen_image/model_files.h"

namespace qwen_image::catalogue {

struct Machine {
  uint64_t memory = 0;  // bytes that it has: what else runs now decides nothing
  uint64_t disk = 0;    // free bytes where the cache is
};
Machine ThisMachine(const std::filesystem::path& cache);

struct Status {
  uint64_t missing_bytes = 0;  // to download
  bool here = false;           // nothing is missing
  bool begun = false;          // some of its first part is there: a download was interrupted
  bool fits_memory = false, fits_disk = false;

  bool Fits() const { return fits_memory && fits_disk; }
};
Status StatusOf(const Entry& entry, const std::filesystem::path& cache, const Machine& machine);

// Where a source is in the cache; nothing unless all of its files are.
std::optional<std::filesystem::path> PathOf(const Source& source, const std::filesystem::path& cache);

// Of those files of a source that are there.
uint64_t BytesOf(const Source& source, const std::filesystem::path& cache);

struct Choice {
  const Entry* entry = nullptr;
  std::string why;  // a line for the user; empty: there was no choice
};

// Of the entries that a name stands for (Catalogue::Find): the first that is downloaded and fits in memory,
// else the first that is downloaded, else the first that was begun and fits, else the first that fits. Throws
// Error kOutOfMemory that lists what each needs if none does; one that was named with its tag is never
// refused.
Choice Choose(const std::vector<const Entry*>& entries, const std::string& name,
              const std::filesystem::path& cache, const Machine& machine);

// Adds the files of `entry` where `named`, which the user said, has none. A transformer of the user's own
// brings its variant and its LoRAs itself; a LoRA that the user names, too, has the user's scale. Throws
// Error kBadInput that says how to get the entry if it is not here.
ModelFiles Resolve(const Entry& entry, ModelFiles named, const std::filesystem::path& cache);

std::string Gigabytes(uint64_t bytes);  // "9.1 GB", "0.3 GB", "17 MB"

}  // namespace qwen_image::catalogue
