#include "keep/prompt_cache.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/fail.h"
#include "files/digest.h"
#include "keep/tensor_file.h"

namespace qwen_image::keep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEmbeds = "prompt_embeds";
constexpr const char* kPromptEnding = ".prompt.safetensors";
constexpr size_t kNameDigits = 32;

int64_t SizeInBytes(const Tensor& tensor) { return tensor.size() * static_cast<int64_t>(sizeof(float)); }

std::map<std::string, std::string> MetadataOf(const PromptKey& key) {
  return {{"format", "qwen-image prompt embeddings 2"},
          {"text_encoder", key.text_encoder},
          {"input_ids", fmt::format("{}", fmt::join(key.ids, " "))},
          {"pictures", key.pictures},
          {"dropped", std::to_string(key.dropped)}};
}

bool IsFinite(const Tensor& tensor) {
  return std::all_of(tensor.data(), tensor.data() + tensor.size(), [](float v) { return std::isfinite(v); });
}

// Only files of exactly these names are ever removed: the folder may be any.
bool IsOurs(const std::string& name) {
  return name.size() == kNameDigits + std::string_view(kPromptEnding).size() &&
         name.ends_with(kPromptEnding) && name.find_first_not_of("0123456789abcdef") == kNameDigits;
}
bool IsOursUnderWay(const std::string& name) {
  const size_t end = name.find(".tmp-");
  return name.starts_with('.') && end != name.npos && IsOurs(name.substr(1, end - 1));
}

struct CachedFile {
  fs::path path;
  int64_t bytes = 0;
  fs::file_time_type used;
};

}  // namespace

PromptCache::PromptCache(fs::path folder, Limits limits) : folder_(std::move(folder)), limits_(limits) {}

std::optional<Tensor> PromptCache::Find(const PromptKey& key) {
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->ids != key.ids || entry->pictures != key.pictures ||
        entry->embeds.shape() != Shape{1, key.tokens, key.width})
      continue;
    entries_.splice(entries_.begin(), entries_, entry);
    return entries_.front().embeds.Clone();
  }
  if (!on_disk()) return std::nullopt;
  std::optional<Tensor> found = FindFile(key);
  if (found) KeepInMemory(key, *found);
  return found;
}

std::optional<Tensor> PromptCache::FindFile(const PromptKey& key) const {
  const fs::path path = FileOf(key);
  try {
    TensorFile kept = ReadTensorFile(
        path, {.metadata = MetadataOf(key), .shapes = {{kEmbeds, {1, key.tokens, key.width}}}});
    std::error_code ignored;  // the time tells which files were not used for long
    fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
    return std::move(kept.tensors.at(kEmbeds));
  } catch (const Error&) {
    return std::nullopt;  // Keep() will replace what is there
  }
}

void PromptCache::Keep(const PromptKey& key, const Tensor& embeds) {
  KeepInMemory(key, embeds);
  if (!on_disk() || !IsFinite(embeds) || SizeInBytes(embeds) > limits_.file_bytes) return;
  try {
    // Token ids can be read as text, so other users of the machine must not see them.
    std::error_code error;
    if (fs::create_directories(folder_, error))
      fs::permissions(folder_, fs::perms::owner_all, fs::perm_options::replace, error);
    TensorFile kept{.metadata = MetadataOf(key), .tensors = {}};
    kept.tensors.emplace(kEmbeds, embeds.Clone());
    const fs::path path = FileOf(key);
    WriteTensorFile(path, kept, OutputFile::Folder::kOwn);
    LimitFiles(static_cast<int64_t>(fs::file_size(path, error)));
  } catch (const Error&) {  // a full disk, a folder that may not be written, …
  }
}

void PromptCache::KeepInMemory(const PromptKey& key, const Tensor& embeds) {
  entries_.push_front({key.ids, key.pictures, embeds.Clone()});
  int64_t total = 0;
  for (const Entry& entry : entries_) total += SizeInBytes(entry.embeds);
  while (total > limits_.memory_bytes) {
    total -= SizeInBytes(entries_.back().embeds);
    entries_.pop_back();
  }
}

fs::path PromptCache::FileOf(const PromptKey& key) const {
  const std::string all = fmt::format("{} {} {} {} {} {}", key.text_encoder, fmt::join(key.ids, ","),
                                      key.pictures, key.dropped, key.tokens, key.width);
  return folder_ / (Sha256(all).substr(0, kNameDigits) + kPromptEnding);
}

// Thousands of files would be looked at for every prompt. Other processes add some too, so now and then they
// are.
void PromptCache::LimitFiles(int64_t new_bytes) {
  constexpr int kFilesBetweenLooks = 64;
  bytes_in_folder_ += new_bytes;
  if (files_until_look_-- > 0 && bytes_in_folder_ <= limits_.file_bytes) return;
  files_until_look_ = kFilesBetweenLooks;
  DropOldFiles();
}

void PromptCache::DropOldFiles() {
  constexpr std::chrono::hours kAbandoned(1);  // a file under way takes seconds; its writer was killed
  const auto now = fs::file_time_type::clock::now();
  std::vector<CachedFile> files;
  int64_t total = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    if (!entry.is_regular_file(error) || error) continue;
    const CachedFile file{entry.path(), static_cast<int64_t>(entry.file_size(error)),
                          entry.last_write_time(error)};
    const std::string name = file.path.filename().string();
    if (IsOursUnderWay(name)) {
      if (now - file.used > kAbandoned) fs::remove(file.path, error);
    } else if (IsOurs(name)) {
      total += file.bytes;
      files.push_back(file);
    }
  }
  std::sort(files.begin(), files.end(),
            [](const CachedFile& a, const CachedFile& b) { return a.used < b.used; });
  // A full folder is not looked at for every file either: some room is made.
  const int64_t wanted = total > limits_.file_bytes ? limits_.file_bytes - limits_.file_bytes / 8 : total;
  for (const CachedFile& file : files) {
    if (total <= wanted) break;
    if (fs::remove(file.path, error)) total -= file.bytes;
  }
  bytes_in_folder_ = total;
}

}  // namespace qwen_image::keep
