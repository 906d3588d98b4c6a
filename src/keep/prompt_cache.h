// Prompt embeddings that were computed before, in this process or, if there is a folder for them, by an
// earlier one. The text encoder is a third of the model, and a prompt that is drawn again does not even read
// it. A cache never fails: what cannot be read, or is not exactly what was asked for, is not there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace qwen_image::keep {

// What the embeddings of a prompt depend on.
struct PromptKey {
  std::string text_encoder;  // IdentityOf the components; read for files only
  std::vector<int64_t> ids;  // with the template's
  std::string pictures;      // a digest of those in the prompt; empty: none
  int64_t dropped = 0;       // leading ids that have no embeddings
  int64_t tokens = 0;        // embeddings that are kept
  int64_t width = 0;         // of one
};

class PromptCache {
 public:
  struct Limits {
    int64_t memory_bytes = 128 << 20;
    int64_t file_bytes =
        256 << 20;  // of all files in the folder, about; those that were not used the longest go first
  };
  explicit PromptCache(std::filesystem::path folder = {}) : PromptCache(std::move(folder), Limits()) {}
  PromptCache(std::filesystem::path folder, Limits limits);

  bool on_disk() const { return !folder_.empty(); }

  // A copy of the embeddings [1, tokens, width], if they are there.
  std::optional<Tensor> Find(const PromptKey& key);
  void Keep(const PromptKey& key, const Tensor& embeds);

 private:
  struct Entry {
    std::vector<int64_t> ids;
    std::string pictures;
    Tensor embeds;
  };
  std::filesystem::path FileOf(const PromptKey& key) const;
  std::optional<Tensor> FindFile(const PromptKey& key) const;
  void KeepInMemory(const PromptKey& key, const Tensor& embeds);
  // To be called behind each new file, whose size is given; looks at the folder when it must.
  void LimitFiles(int64_t new_bytes);
  void DropOldFiles();

  std::filesystem::path folder_;  // empty: none
  Limits limits_;
  int64_t bytes_in_folder_ = 0;  // when it was looked at, and what this process has added since
  int files_until_look_ = 0;
  std::list<Entry> entries_;  // of this process, the last used first
};

}  // namespace qwen_image::keep
