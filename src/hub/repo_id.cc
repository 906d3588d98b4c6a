#include "hub/repo_id.h"

#include <algorithm>
#include <filesystem>

#include "files/safe_path.h"
#include "files/text.h"

namespace qwen_image::hub {
namespace {

bool IsLetterOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool IsNamePart(std::string_view part) {
  const auto allowed = [](char c) { return IsLetterOrDigit(c) || c == '-' || c == '_' || c == '.'; };
  const auto edge = [](char c) { return c != '-' && c != '.'; };
  return !part.empty() && std::all_of(part.begin(), part.end(), allowed) && edge(part.front()) &&
         edge(part.back());
}

}  // namespace

bool IsLowercaseHex(std::string_view text, size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool IsCommitHash(std::string_view text) { return IsLowercaseHex(text, 40); }

bool IsPlainPath(std::string_view path) {
  constexpr size_t kMaxPart = 255, kMaxPath = 1024;
  if (path.empty() || path.size() > kMaxPath || !IsUtf8(path) || !StaysInside(path)) return false;
  if (std::any_of(path.begin(), path.end(), [](unsigned char c) { return c < 32 || c == 127 || c == '\\'; }))
    return false;
  for (size_t start = 0; start <= path.size();) {
    const size_t end = std::min(path.find('/', start), path.size());
    const std::string_view part = path.substr(start, end - start);
    if (part.empty() || part == "." || part.size() > kMaxPart) return false;
    start = end + 1;
  }
  return true;
}

std::optional<RepoId> ParseRepoId(std::string_view text) {
  constexpr size_t kMaxName = 96;
  const size_t at = text.find('@');
  const std::string_view full = text.substr(0, at);
  const size_t slash = full.find('/');
  if (slash == full.npos || full.size() > kMaxName) return std::nullopt;
  const std::string_view owner = full.substr(0, slash), name = full.substr(slash + 1);
  // "--" stands between owner and name in the names of the cache's folders.
  if (!IsNamePart(owner) || !IsNamePart(name) || full.find("--") != full.npos ||
      full.find("..") != full.npos || full.ends_with(".git"))
    return std::nullopt;
  RepoId repo{std::string(owner), std::string(name), ""};
  if (at != text.npos) {
    repo.revision = text.substr(at + 1);
    if (!IsPlainPath(repo.revision)) return std::nullopt;
  }
  return repo;
}

}  // namespace qwen_image::hub
