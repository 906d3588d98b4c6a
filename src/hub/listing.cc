#include <set>

#include "core/fail.h"
#include "files/json.h"
#include "files/text.h"
#include "hub/client.h"

namespace qwen_image::hub {
namespace {

constexpr size_t kMaxFiles = 100'000;

const Json* Find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string Text(const Json* value) { return value && value->is_string() ? value->get<std::string>() : ""; }

class ListingReader {
 public:
  explicit ListingReader(const std::string& where) : where_(where) {}

  Listing Read(const Json& json) {
    if (!json.is_object()) Refuse("it is not a JSON object");
    Listing listing;
    listing.commit = Text(Find(json, "sha"));
    if (!IsCommitHash(listing.commit)) Refuse("\"sha\" is not the hash of a commit");
    const Json* siblings = Find(json, "siblings");
    if (!siblings || !siblings->is_array()) Refuse("\"siblings\", the list of files, is missing");
    if (siblings->size() > kMaxFiles) Refuse(fmt::format("it has more than {} files", kMaxFiles));
    for (const Json& sibling : *siblings) listing.files.push_back(ReadFile(sibling));
    return listing;
  }

 private:
  [[noreturn]] void Refuse(const std::string& what) const {
    Fail(ErrorKind::kBadInput, "{}: the list of files cannot be used: {}", where_, what);
  }

  uint64_t ReadSize(const Json& object, const std::string& path) const {
    const Json* size = Find(object, "size");
    if (!size) return 0;
    if (!size->is_number_unsigned() || size->get<uint64_t>() > kMaxHubFileSize)
      Refuse(fmt::format("the size of {} is {}", Quoted(path), Printable(size->dump(), 40)));
    return size->get<uint64_t>();
  }

  RemoteFile ReadFile(const Json& sibling) {
    if (!sibling.is_object()) Refuse("an entry is not a JSON object");
    RemoteFile file;
    file.path = Text(Find(sibling, "rfilename"));
    if (!IsPlainPath(file.path)) Refuse(fmt::format("{} is not a name for a file", Quoted(file.path)));
    if (!seen_.insert(file.path).second) Refuse(fmt::format("{} occurs twice", Quoted(file.path)));
    const Json* lfs = Find(sibling, "lfs");
    if (lfs && !lfs->is_object())
      Refuse(fmt::format("\"lfs\" of {} is not a JSON object", Quoted(file.path)));
    file.size = ReadSize(lfs ? *lfs : sibling, file.path);
    file.hash = lfs ? Text(Find(*lfs, "sha256")) : Text(Find(sibling, "blobId"));
    const size_t digits = lfs ? kSha256Digits : kGitHashDigits;
    if (!file.hash.empty() && !IsLowercaseHex(file.hash, digits))
      Refuse(fmt::format("the hash of {} is {}", Quoted(file.path), Quoted(file.hash)));
    return file;
  }

  const std::string& where_;
  std::set<std::string> seen_;
};

}  // namespace

Listing ParseListing(std::string_view json, const std::string& where) {
  return ListingReader(where).Read(ParseJson(json, where));
}

}  // namespace qwen_image::hub
