// The name of a model on Hugging Face: "owner/name", or "owner/name@revision".
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace qwen_image::hub {

constexpr const char* kDefaultRevision = "main";

struct RepoId {
  std::string owner, name;
  std::string revision;  // a branch, tag or commit; empty: not said

  std::string FullName() const { return owner + "/" + name; }
  std::string Revision() const { return revision.empty() ? kDefaultRevision : revision; }
  std::string ToString() const { return revision.empty() ? FullName() : FullName() + "@" + revision; }
};

// Nothing for a text that cannot be such a name, by the rules of Hugging Face.
std::optional<RepoId> ParseRepoId(std::string_view text);

// True for the relative path of a file that may be created below a folder whatever server named it: it stays
// inside, has no empty parts, backslashes or control characters, and no part is too long for a file system.
bool IsPlainPath(std::string_view path);

bool IsCommitHash(std::string_view text);  // 40 hexadecimal digits
bool IsLowercaseHex(std::string_view text, size_t digits);

}  // namespace qwen_image::hub
