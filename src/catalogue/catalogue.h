// The published models that have a short name: which files of which repositories make one, what it needs, and
// where its file names were seen. The list is data, catalogue.json, which is built into the program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/json.h"
#include "hub/repo_id.h"

namespace qwen_image::catalogue {

// A file of a repository, or a folder of it with the files that are needed.
struct Source {
  std::string id;  // in the catalogue
  hub::RepoId repo;
  std::string path;                // of the file or the folder; "." is the whole repository
  std::vector<std::string> files;  // to download; the file itself unless `path` is a folder
  uint64_t bytes = 0;              // of all, roughly: the list of the repository's files knows better
  std::string seen;                // where the names were seen; empty: nobody saw them, they are a guess

  bool IsFolder() const { return files.size() != 1 || files.front() != path; }
};

struct Lora {
  const Source* source = nullptr;
  double scale = 1;
};

struct Entry {
  std::string name;         // "qwen-image-2.1:turbo-q4"
  std::string family, tag;  // its halves
  std::string purpose;
  std::string variant;  // what the files do not tell (--variant)
  std::string licence;
  uint64_t memory = 0;  // bytes that a machine should have
  // Where they are not the model's own.
  std::optional<int64_t> steps;
  std::optional<double> cfg;

  // What is null, another part brings along.
  const Source* model = nullptr;
  const Source *transformer = nullptr, *text_encoder = nullptr, *vision_encoder = nullptr, *vae = nullptr,
               *tokenizer = nullptr;
  std::vector<Lora> loras;

  std::vector<const Source*> Sources() const;  // all of them, LoRAs last
  uint64_t Bytes() const;                      // to download, if nothing is there
  bool AllSeen() const;
};

class Catalogue {
 public:
  Catalogue(Catalogue&&) = default;  // a copy's entries would point into the original
  Catalogue& operator=(Catalogue&&) = default;

  // Throws Error kBadInput for what is not a catalogue in every detail: a typing mistake in the data
  // must not become a model that is a little wrong. `where` names it.
  static Catalogue Parse(const Json& json, const std::string& where);
  // The one that is built in, or the file that $QWEN_IMAGE_CATALOGUE names.
  static Catalogue Load();

  // The best of each family first.
  const std::vector<Entry>& entries() const { return entries_; }
  const std::vector<Source>& sources() const { return sources_; }

  // The entry of that name, or all of a family if the name has no tag. Throws Error kBadInput that suggests
  // others if there is none.
  std::vector<const Entry*> Find(std::string_view name) const;

 private:
  Catalogue() = default;
  std::vector<Source> sources_;
  std::vector<Entry> entries_;  // point into it
};

// Whether a text is of the form FAMILY or FAMILY:TAG. Paths with a slash and OWNER/NAME are not.
bool IsName(std::string_view text);

}  // namespace qwen_image::catalogue
