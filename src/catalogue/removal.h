// What of the cache belongs to one entry of the catalogue alone, and its deletion.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "catalogue/catalogue.h"

namespace qwen_image::catalogue {

struct Removal {
  std::vector<const Source*> sources;  // to delete
  uint64_t bytes = 0;                  // of what is there of them
  struct Kept {
    const Source* source = nullptr;
    std::string why;
  };
  std::vector<Kept> kept;
};

// Kept is what another entry that is downloaded uses, and a folder (a tokenizer) of a repository that holds
// files which no entry names: somebody pulled more of it than this program would have.
Removal PlanRemoval(const Catalogue& catalogue, const Entry& entry, const std::filesystem::path& cache);

uint64_t Remove(const Removal& removal, const std::filesystem::path& cache);  // bytes that it freed

}  // namespace qwen_image::catalogue
