#include "catalogue/removal.h"

#include <algorithm>
#include <set>
#include <system_error>

#include "catalogue/local.h"
#include "core/fail.h"
#include "hub/cache.h"
#include "hub/remove.h"

namespace qwen_image::catalogue {
namespace {

namespace fs = std::filesystem;

bool HoldsMore(const Catalogue& catalogue, const Source& source, const fs::path& cache) {
  const auto snapshot = hub::SnapshotFolder(cache, source.repo);
  if (!snapshot) return false;
  std::set<std::string> known;
  for (const Source& other : catalogue.sources()) {
    if (other.repo.FullName() == source.repo.FullName()) known.insert(other.files.begin(), other.files.end());
  }
  std::error_code error;
  for (fs::recursive_directory_iterator it(*snapshot, error), end; !error && it != end; it.increment(error)) {
    if (it->is_directory(error) && !it->is_symlink(error)) continue;
    if (!known.contains(it->path().lexically_relative(*snapshot).string())) return true;
  }
  return false;
}

// The other downloaded entry that uses a source; null: none. One that is made of the same files is not
// another.
const Entry* OtherUser(const Catalogue& catalogue, const Entry& entry, const Source* source,
                       const fs::path& cache) {
  for (const Entry& other : catalogue.entries()) {
    const std::vector<const Source*> sources = other.Sources();
    if (sources != entry.Sources() && std::find(sources.begin(), sources.end(), source) != sources.end() &&
        StatusOf(other, cache, {}).here)
      return &other;
  }
  return nullptr;
}

}  // namespace

Removal PlanRemoval(const Catalogue& catalogue, const Entry& entry, const fs::path& cache) {
  Removal removal;
  for (const Source* source : entry.Sources()) {
    const uint64_t bytes = BytesOf(*source, cache);
    if (const Entry* other = OtherUser(catalogue, entry, source, cache)) {
      removal.kept.push_back({source, fmt::format("{} uses it", other->name)});
    } else if (source->IsFolder() && source->path != "." && HoldsMore(catalogue, *source, cache)) {
      removal.kept.push_back({source, fmt::format("more of {} is downloaded", source->repo.FullName())});
    } else {
      removal.sources.push_back(source);
      removal.bytes += bytes;
    }
  }
  return removal;
}

uint64_t Remove(const Removal& removal, const fs::path& cache) {
  uint64_t bytes = 0;
  for (const Source* source : removal.sources)
    bytes += hub::RemoveFiles(cache, source->repo, source->files).bytes;
  return bytes;
}

}  // namespace qwen_image::catalogue
