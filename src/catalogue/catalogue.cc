#include "catalogue/catalogue.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "catalogue/embedded_file.h"
#include "catalogue/nearest.h"
#include "core/fail.h"
#include "families/vocabulary.h"
#include "files/text.h"
#include "hub/client.h"
#include "hub/environment.h"

namespace qwen_image::catalogue {
namespace {

using Names = std::set<std::string, std::less<>>;

bool IsNamePart(std::string_view part) {
  constexpr size_t kMaxLength = 60;
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !part.empty() && part.size() <= kMaxLength && plain(part.front()) && plain(part.back()) &&
         std::all_of(part.begin(), part.end(),
                     [&](char c) { return plain(c) || c == '.' || c == '-' || c == '_'; });
}

// Reads the objects of the data file. Every refusal names the object and the key.
class ObjectReader {
 public:
  ObjectReader(const Json& json, std::string where, const Names& known)
      : json_(json), where_(std::move(where)) {
    if (!json.is_object()) Refuse("it is not an object");
    for (const auto& [key, value] : json.items()) {
      if (!known.contains(key)) Refuse(fmt::format("{} is not a key that belongs here", Quoted(key)));
    }
  }

  [[noreturn]] void Refuse(const std::string& what) const {
    Fail(ErrorKind::kBadInput, "{}: {}", where_, what);
  }
  const std::string& where() const { return where_; }
  bool Has(const char* key) const { return json_.contains(key); }

  const Json& Get(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) Refuse(fmt::format("\"{}\" is missing", key));
    return *found;
  }
  std::string Text(const char* key) const { return TextOf(Get(key), key); }
  std::string TextOf(const Json& value, const char* key) const {
    constexpr size_t kMaxLength = 1000;
    if (!value.is_string() || value.get_ref<const std::string&>().empty() ||
        value.get_ref<const std::string&>().size() > kMaxLength)
      Refuse(fmt::format("\"{}\" is not a text", key));
    if (Printable(value.get_ref<const std::string&>(), kMaxLength) != value)
      Refuse(fmt::format("\"{}\" has characters that a terminal would obey", key));
    return value.get<std::string>();
  }
  uint64_t Bytes(const char* key) const {
    const Json& value = Get(key);
    if (!value.is_number_unsigned() || value.get<uint64_t>() == 0 ||
        value.get<uint64_t>() > hub::kMaxHubFileSize)
      Refuse(fmt::format("\"{}\" is not a number of bytes above 0", key));
    return value.get<uint64_t>();
  }
  double Number(const char* key, double min, double max) const {
    const Json& value = Get(key);
    if (!value.is_number() || value.get<double>() < min || value.get<double>() > max)
      Refuse(fmt::format("\"{}\" is not a number from {} to {}", key, min, max));
    return value.get<double>();
  }
  const Json& Array(const char* key) const {
    const Json& value = Get(key);
    if (!value.is_array() || value.empty()) Refuse(fmt::format("\"{}\" is not a list", key));
    return value;
  }

 private:
  const Json& json_;
  std::string where_;
};

// A path, or a name with '*', which would be a pattern for `pull`.
bool IsExactPath(const std::string& path) { return hub::IsPlainPath(path) && path.find('*') == path.npos; }

void ReadFiles(const ObjectReader& reader, Source& source) {
  if (!reader.Has("files")) {
    if (!IsExactPath(source.path)) reader.Refuse("\"path\" is not the name of a file");
    source.files = {source.path};
    return;
  }
  if (source.path != "." && !IsExactPath(source.path)) reader.Refuse("\"path\" is not the name of a folder");
  for (const Json& json : reader.Array("files")) {
    std::string file = reader.TextOf(json, "files");
    const bool inside = source.path == "." || file.starts_with(source.path + "/");
    if (!IsExactPath(file) || !inside)
      reader.Refuse(fmt::format("{} is not a file of \"path\"", Quoted(file)));
    source.files.push_back(std::move(file));
  }
}

Source ReadSource(const std::string& id, const Json& json, const std::string& where) {
  const ObjectReader reader(json, fmt::format("{}: file {}", where, Quoted(id)),
                            {"repository", "path", "files", "bytes", "seen", "unseen"});
  Source source{.id = id};
  const std::string repo = reader.Text("repository");
  const auto parsed = hub::ParseRepoId(repo);
  if (!parsed) reader.Refuse(fmt::format("{} is not OWNER/NAME", Quoted(repo)));
  source.repo = *parsed;
  source.path = reader.Text("path");
  ReadFiles(reader, source);
  source.bytes = reader.Bytes("bytes");
  if (reader.Has("seen") == reader.Has("unseen"))
    reader.Refuse("it must have either \"seen\", where the name was seen, or \"unseen\"");
  if (reader.Has("seen")) {
    source.seen = reader.Text("seen");
  } else if (reader.Get("unseen") != true) {
    reader.Refuse("\"unseen\" can only be true");
  }
  return source;
}

class EntryReader {
 public:
  EntryReader(const std::vector<Source>& sources, std::string where)
      : sources_(sources), where_(std::move(where)), variants_(KnownVariants()) {}

  Entry Read(const Json& json, size_t index) const {
    const ObjectReader reader(
        json, fmt::format("{}: model {}", where_, index + 1),
        {"name", "purpose", "variant", "licence", "memory", "defaults", "parts", "loras"});
    Entry entry{.name = reader.Text("name")};
    const size_t colon = entry.name.find(':');
    if (!IsName(entry.name) || colon == entry.name.npos)
      reader.Refuse(fmt::format("{} is not of the form FAMILY:TAG", Quoted(entry.name)));
    entry.family = entry.name.substr(0, colon);
    entry.tag = entry.name.substr(colon + 1);
    entry.purpose = reader.Text("purpose");
    entry.licence = reader.Text("licence");
    entry.memory = reader.Bytes("memory");
    if (reader.Has("variant")) {
      entry.variant = reader.Text("variant");
      if (std::find(variants_.begin(), variants_.end(), entry.variant) == variants_.end())
        reader.Refuse(fmt::format("{} is not a variant that this program knows", Quoted(entry.variant)));
    }
    if (reader.Has("defaults")) ReadDefaults(reader, entry);
    ReadParts(reader, entry);
    if (reader.Has("loras")) ReadLoras(reader, entry);
    return entry;
  }

 private:
  static void ReadDefaults(const ObjectReader& above, Entry& entry) {
    const ObjectReader reader(above.Get("defaults"), above.where() + ": defaults", {"steps", "cfg"});
    if (reader.Has("steps")) entry.steps = static_cast<int64_t>(reader.Number("steps", 1, 1000));
    if (reader.Has("cfg")) entry.cfg = reader.Number("cfg", 0, 100);
  }

  void ReadParts(const ObjectReader& above, Entry& entry) const {
    const ObjectReader reader(above.Get("parts"), above.where() + ": parts",
                              {"model", "transformer", "text_encoder", "vision_encoder", "vae", "tokenizer"});
    const auto take = [&](const char* part, const Source*& source) {
      if (reader.Has(part)) source = Find(reader, reader.Text(part));
    };
    take("model", entry.model);
    take("transformer", entry.transformer);
    take("text_encoder", entry.text_encoder);
    take("vision_encoder", entry.vision_encoder);
    take("vae", entry.vae);
    take("tokenizer", entry.tokenizer);
    if (!entry.model && (!entry.transformer || !entry.text_encoder || !entry.vae))
      reader.Refuse("transformer, text_encoder and vae are needed, or a model that has them");
  }

  void ReadLoras(const ObjectReader& above, Entry& entry) const {
    for (const Json& json : above.Array("loras")) {
      const ObjectReader reader(json, above.where() + ": loras", {"file", "scale"});
      entry.loras.push_back({Find(reader, reader.Text("file")), reader.Number("scale", -10, 10)});
    }
  }

  const Source* Find(const ObjectReader& reader, const std::string& id) const {
    for (const Source& source : sources_) {
      if (source.id == id) return &source;
    }
    reader.Refuse(fmt::format("there is no file {}", Quoted(id)));
  }

  const std::vector<Source>& sources_;
  std::string where_;
  std::vector<std::string> variants_;
};

// A file is in one place of the data only, so that two entries that share it are known to.
void RefuseRepeated(const std::vector<Source>& sources, const std::string& where) {
  Names seen;
  for (const Source& source : sources) {
    for (const std::string& file : source.files) {
      const std::string full = fmt::format("{}: {}", source.repo.FullName(), file);
      if (!seen.insert(full).second)
        Fail(ErrorKind::kBadInput, "{}: {} is the file of two names", where, Quoted(full));
    }
  }
}

void RefuseUnused(const Catalogue& catalogue, const std::string& where) {
  std::set<const Source*> used;
  for (const Entry& entry : catalogue.entries()) {
    for (const Source* source : entry.Sources()) used.insert(source);
  }
  for (const Source& source : catalogue.sources()) {
    if (!used.contains(&source))
      Fail(ErrorKind::kBadInput, "{}: no model uses the file {}", where, Quoted(source.id));
  }
}

}  // namespace

std::vector<const Source*> Entry::Sources() const {
  std::vector<const Source*> sources;
  for (const Source* source : {model, transformer, text_encoder, vision_encoder, vae, tokenizer}) {
    if (source) sources.push_back(source);
  }
  for (const Lora& lora : loras) sources.push_back(lora.source);
  return sources;
}

uint64_t Entry::Bytes() const {
  uint64_t bytes = 0;
  for (const Source* source : Sources()) bytes += source->bytes;
  return bytes;
}

bool Entry::AllSeen() const {
  const std::vector<const Source*> sources = Sources();
  return std::none_of(sources.begin(), sources.end(), [](const Source* s) { return s->seen.empty(); });
}

bool IsName(std::string_view text) {
  const size_t colon = text.find(':');
  return IsNamePart(text.substr(0, colon)) && (colon == text.npos || IsNamePart(text.substr(colon + 1)));
}

Catalogue Catalogue::Parse(const Json& json, const std::string& where) {
  const ObjectReader reader(json, where, {"files", "models"});
  Catalogue catalogue;
  const Json& files = reader.Get("files");
  if (!files.is_object()) reader.Refuse("\"files\" is not an object");
  for (const auto& [id, file] : files.items()) catalogue.sources_.push_back(ReadSource(id, file, where));
  RefuseRepeated(catalogue.sources_, where);
  const EntryReader entries(catalogue.sources_, where);
  Names names;
  for (const Json& model : reader.Array("models")) {
    Entry entry = entries.Read(model, catalogue.entries_.size());
    if (!names.insert(entry.name).second) reader.Refuse(fmt::format("{} occurs twice", Quoted(entry.name)));
    catalogue.entries_.push_back(std::move(entry));
  }
  RefuseUnused(catalogue, where);
  return catalogue;
}

Catalogue Catalogue::Load() {
  if (const auto path = hub::ProcessEnvironment("QWEN_IMAGE_CATALOGUE"))
    return Parse(ReadJsonFile(*path, size_t{4} << 20), *path);
  const char* where = "the built-in catalogue";
  return Parse(ParseJson(kEmbeddedFiles[0].content, where), where);
}

std::vector<const Entry*> Catalogue::Find(std::string_view name) const {
  std::vector<const Entry*> found;
  std::vector<std::string> names;
  for (const Entry& entry : entries_) {
    if (entry.name == name || entry.family == name) found.push_back(&entry);
    names.push_back(entry.name);
    if (std::find(names.begin(), names.end(), entry.family) == names.end()) names.push_back(entry.family);
  }
  if (!found.empty()) return found;
  Fail(ErrorKind::kBadInput,
       "there is no model {}: it is neither a file or folder here nor a name that this program knows; "
       "nearest: {} (qwen-image list "
       "shows all)",
       Printable(name), fmt::join(Nearest(name, names, 3), ", "));
}

}  // namespace qwen_image::catalogue
