// What the tests of the catalogue share: a small one, and a cache to put its files into.
#pragma once

#include <fmt/format.h>

#include <string>

#include "catalogue/catalogue.h"
#include "files/testing.h"
#include "hub/cache.h"

namespace qwen_image::catalogue {

// Two models of a family that share a text encoder and a VAE, and one that is a whole folder.
inline Json SmallCatalogue() {
  const auto file = [](const char* repo, const char* path, uint64_t bytes) {
    return Json{{"repository", repo}, {"path", path}, {"bytes", bytes}, {"seen", "a listing"}};
  };
  Json json = {{"files",
                {{"large", file("owner/model", "large.gguf", 4'000)},
                 {"small", file("owner/model", "small.gguf", 2'000)},
                 {"encoder", file("owner/encoder", "encoder.gguf", 1'000)},
                 {"vae", file("owner/parts", "vae/vae.safetensors", 300)},
                 {"lightning", file("owner/loras", "Lightning-4steps.safetensors", 50)},
                 {"whole",
                  {{"repository", "other/whole"},
                   {"path", "."},
                   {"files", {"model_index.json", "vae/config.json"}},
                   {"bytes", 10u},
                   {"unseen", true}}},
                 {"words",
                  {{"repository", "owner/parts"},
                   {"path", "tokenizer"},
                   {"files", {"tokenizer/vocab.json", "tokenizer/merges.txt"}},
                   {"bytes", 20u},
                   {"seen", "a fixture"}}}}}};
  const auto model = [](const char* name, uint64_t memory, Json parts) {
    return Json{{"name", name},
                {"purpose", "text"},
                {"licence", "Apache-2.0"},
                {"memory", memory},
                {"parts", std::move(parts)}};
  };
  Json large =
      model("fox:large", 8'000,
            {{"transformer", "large"}, {"text_encoder", "encoder"}, {"vae", "vae"}, {"tokenizer", "words"}});
  large["variant"] = "2.1-turbo";
  Json small =
      model("fox:small", 4'000, {{"transformer", "small"}, {"text_encoder", "encoder"}, {"vae", "vae"}});
  small["loras"] = Json::array({{{"file", "lightning"}, {"scale", 0.5}}});
  small["defaults"] = {{"steps", 4}, {"cfg", 1.5}};
  json["models"] = Json::array({large, small, model("owl:whole", 1'000, {{"model", "whole"}})});
  return json;
}

// The cache as downloads leave it.
class CacheFolder {
 public:
  const std::filesystem::path& path() const { return folder_.path(); }
  std::filesystem::path Repo(const std::string& repo) const {
    return hub::RepoFolder(path(), *hub::ParseRepoId(repo));
  }
  std::filesystem::path Snapshot(const std::string& repo) const { return Repo(repo) / "snapshots" / kCommit; }

  void Store(const std::string& repo, const std::string& file, const std::string& bytes) const {
    const std::string hash = fmt::format("{:040x}", std::hash<std::string>()(bytes));
    folder_.Write(fmt::format("{}/blobs/{}", Repo(repo).filename().string(), hash), bytes);
    hub::LinkBlob(Repo(repo), kCommit, file, hash);
    hub::WriteRef(Repo(repo), "main", kCommit);
  }
  void Store(const Source& source) const {
    for (const std::string& file : source.files) Store(source.repo.FullName(), file, file + " of it");
  }
  void Store(const Entry& entry) const {
    for (const Source* source : entry.Sources()) Store(*source);
  }

 private:
  const std::string kCommit = std::string(40, '1');
  const TempFolder folder_;
};

}  // namespace qwen_image::catalogue
