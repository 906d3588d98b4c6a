#include "prove/privacy.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string_view>

#include "files/folder.h"

namespace qwen_image::prove {
namespace {

namespace fs = std::filesystem;

constexpr const char *kModel = "MODEL", *kElsewhere = "[path]";

bool EndsPath(char c) {
  return std::isspace(static_cast<unsigned char>(c)) || std::strchr("\"'`,;:()[]{}<>|", c);
}

bool BeginsPath(std::string_view text, size_t at) {
  if (at > 0 && !EndsPath(text[at - 1]) && text[at - 1] != '=') return false;  // "s/step"
  const std::string_view rest = text.substr(at);
  if (rest.starts_with("~/")) return true;
  const size_t name = std::min(rest.find_first_not_of('/'), rest.size());
  if (name == 0 || name == rest.size() || EndsPath(rest[name])) return false;
  return name != 2 || at == 0 || text[at - 1] != ':';  // "https://…"
}

void ReplaceAll(std::string& text, const std::string& what, const std::string& instead) {
  for (size_t at = 0; (at = text.find(what, at)) != text.npos; at += instead.size()) {
    const size_t end = at + what.size();
    // "/models/tiny" is not the beginning of "/models/tiny2".
    const bool whole = what.back() == '/' || end == text.size() || text[end] == '/' || EndsPath(text[end]) ||
                       text[end] == '.';
    text.replace(at, what.size(), whole ? instead : std::string(kElsewhere) + " ");
  }
}

// Paths that nobody said would be there.
std::string WithoutPaths(std::string_view text) {
  std::string clean;
  for (size_t i = 0; i < text.size();) {
    if (!BeginsPath(text, i)) {
      clean += text[i++];
      continue;
    }
    while (i < text.size() && !EndsPath(text[i])) ++i;
    clean += kElsewhere;
  }
  return clean;
}

}  // namespace

fs::path AbsolutePath(const fs::path& path) {
  if (path.empty()) return path;
  std::error_code error;
  fs::path absolute = fs::absolute(path, error).lexically_normal();
  if (error) return path;
  return absolute.has_filename() ? absolute : absolute.parent_path();  // "models/tiny/"
}

ModelFiles AbsoluteFiles(const ModelFiles& files) {
  ModelFiles absolute = files;
  for (fs::path* path : {&absolute.model, &absolute.transformer, &absolute.text_encoder, &absolute.vae,
                         &absolute.tokenizer, &absolute.vision_encoder})
    *path = AbsolutePath(*path);
  for (LoraFile& lora : absolute.loras) lora.path = AbsolutePath(lora.path);
  return absolute;
}

Cleaner::Cleaner(const ModelFiles& files, const std::vector<fs::path>& folders) {
  if (IsFolder(files.model)) {
    Know(files.model, kModel);
  } else if (!files.model.empty()) {
    Know(AbsolutePath(files.model).parent_path() / "", "");
  }
  std::vector<fs::path> parts = {files.transformer, files.text_encoder, files.vae, files.tokenizer,
                                 files.vision_encoder};
  for (const LoraFile& lora : files.loras) parts.push_back(lora.path);
  for (const fs::path& part : parts) {
    if (!part.empty()) Know(AbsolutePath(part).parent_path() / "", "");
  }
  for (const fs::path& folder : folders) Know(folder, kElsewhere);
  std::stable_sort(known_.begin(), known_.end(),
                   [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
}

void Cleaner::Know(const fs::path& path, const std::string& instead) {
  if (path.empty()) return;
  std::error_code error;
  const bool inside = !path.has_filename();  // ends in '/'
  for (fs::path form : {path, AbsolutePath(path), fs::weakly_canonical(path, error)}) {
    if (!form.has_filename()) form = form.parent_path();
    if (!form.is_absolute() || form == form.root_path()) continue;  // "/" is in every path
    known_.emplace_back(form.string() + (inside ? "/" : ""), instead);
  }
}

std::string Cleaner::Clean(const std::string& text) const {
  std::string clean = text;
  for (const auto& [path, instead] : known_) ReplaceAll(clean, path, instead);
  return WithoutPaths(clean);
}

void Cleaner::Clean(Json& json) const {
  if (json.is_string()) {
    json = Clean(json.get<std::string>());
  } else if (json.is_structured()) {
    for (Json& value : json) Clean(value);
  }
}

}  // namespace qwen_image::prove
