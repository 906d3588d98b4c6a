#include "parity/record/tensor_set.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "core/fail.h"
#include "families/checkpoint_names.h"
#include "files/safe_path.h"
#include "files/text.h"
#include "parity/record/natural_order.h"
#include "parity/record/tensor_file.h"

namespace qwen_image::record {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPiece = 16384;                       // elements; so many fit into the cache
constexpr uint64_t kReleaseAfter = uint64_t{32} << 20;  // bytes of a mapped file that may stay in memory

std::string TextMember(const Json& entry, const char* key, const std::string& where) {
  const auto found = entry.is_object() ? entry.find(key) : entry.end();
  if (found == entry.end() || !found->is_string())
    Fail(ErrorKind::kBadInput, "{}: a checkpoint without \"{}\", or it is not a text", where, key);
  return found->get<std::string>();
}

// A manifest made of files without an order says so.
bool TellsOrder(const Json& manifest) {
  const auto order = manifest.find("order");
  return order == manifest.end() || *order != "unknown";
}

// Whether the tensors of each type are sorted by name: then their order in the file tells nothing.
bool IsSortedByName(const std::vector<TensorInfo>& tensors) {
  const auto sorted_by = [&](const auto& before) {
    std::map<std::string_view, std::string_view> last;  // by type
    return std::all_of(tensors.begin(), tensors.end(), [&](const TensorInfo& tensor) {
      const auto [at, first] = last.emplace(tensor.dtype, tensor.name);
      const bool in_order = first || !before(tensor.name, at->second);
      at->second = tensor.name;
      return in_order;
    });
  };
  // As paths are sorted: "a/x" before "a.b/x".
  const auto by_parts = [](std::string_view a, std::string_view b) {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
      return (x == '/' ? '\1' : x) < (y == '/' ? '\1' : y);
    });
  };
  return sorted_by(std::less<std::string_view>()) || sorted_by(NaturallyBefore) || sorted_by(by_parts);
}

}  // namespace

struct TensorSet::Impl {
  struct Member {
    TensorFile* file;
    size_t index;
  };

  explicit Impl(const fs::path& p) : path(p) {}

  TensorFile& File(const fs::path& file);
  void Add(const std::string& name, TensorFile& file, size_t member);
  void AddAll(const std::string& prefix, TensorFile& file);
  void AddManifest();
  void AddFolder();
  void FindOrder();
  void Sort(const std::vector<std::optional<Place>>& known);
  void BuildIndex();

  fs::path path;
  Json manifest;
  std::vector<TensorInfo> tensors;
  std::vector<Member> members;  // one for each of `tensors`
  TensorOrder order = TensorOrder::kUnknown;
  std::unordered_map<std::string, size_t> index;
  std::map<fs::path, std::unique_ptr<TensorFile>> files;

  TensorFile* last_read = nullptr;
  uint64_t read_bytes = 0;  // read since the last release
};

TensorFile& TensorSet::Impl::File(const fs::path& file) {
  std::unique_ptr<TensorFile>& slot = files[file];
  if (!slot) slot = OpenTensorFile(file);
  return *slot;
}

void TensorSet::Impl::Add(const std::string& name, TensorFile& file, size_t member) {
  const TensorFile::Member& m = file.members()[member];
  tensors.push_back({.name = name,
                     .own_name = name,
                     .shape = m.shape,
                     .dtype = std::string(m.type->numpy),
                     .count = m.count,
                     .is_float = IsFloatingPoint(m.type->dtype)});
  members.push_back({&file, member});
}

void TensorSet::Impl::AddAll(const std::string& prefix, TensorFile& file) {
  for (size_t i = 0; i < file.members().size(); ++i) {
    const std::string& name = file.members()[i].name;
    std::string path = prefix;
    if (!prefix.empty() && !name.empty()) path += '/';
    path += name;
    Add(path, file, i);
  }
}

void TensorSet::Impl::AddManifest() {
  const fs::path manifest_path = path / "manifest.json";
  const std::string where = manifest_path.string();
  manifest = ReadJsonFile(manifest_path);
  if (!manifest.is_object()) Fail(ErrorKind::kBadInput, "{}: expected a JSON object", where);
  const auto checkpoints = manifest.find("checkpoints");
  if (checkpoints == manifest.end() || !checkpoints->is_array())
    Fail(ErrorKind::kBadInput, "{}: \"checkpoints\" is missing or no list", where);
  for (const Json& entry : *checkpoints) {
    const std::string name = TextMember(entry, "name", where);
    const fs::path file = TextMember(entry, "file", where);
    // A manifest is untrusted input.
    if (!StaysInside(file))
      Fail(ErrorKind::kBadInput, "{}: the file {} of {} lies outside the run's folder", where,
           Quoted(file.string()), Quoted(name));
    TensorFile& opened = File(path / file);
    const auto member = opened.Find(file.extension() == ".npy" ? "" : name);
    if (!member) Fail(ErrorKind::kBadInput, "{}: no tensor {}", (path / file).string(), Quoted(name));
    Add(name, opened, *member);
  }
}

void TensorSet::Impl::AddFolder() {
  std::error_code error;
  for (fs::recursive_directory_iterator at(path, error), end; at != end; at.increment(error)) {
    if (error) break;
    if (!IsTensorFile(at->path())) continue;
    fs::path name = at->path().lexically_relative(path);
    AddAll(name.replace_extension().generic_string(), File(at->path()));
  }
  if (error) Fail(ErrorKind::kBadInput, "cannot list the folder {}: {}", path.string(), error.message());
}

void TensorSet::Impl::FindOrder() {
  std::vector<std::string> names;
  for (const TensorInfo& tensor : tensors) names.push_back(tensor.name);
  const CheckpointNames& family = NamesFor(names);
  std::vector<std::optional<Place>> known;
  for (const std::string& name : names)
    known.push_back(family.order ? PlaceOf(family.order(), name) : std::nullopt);
  if (std::all_of(known.begin(), known.end(), [](const auto& place) { return place.has_value(); })) {
    order = TensorOrder::kNames;
  } else if (files.size() == 1 && !IsSortedByName(tensors)) {
    order = TensorOrder::kFile;
    return;
  }
  Sort(known);
}

// Known places first, the others in natural order.
void TensorSet::Impl::Sort(const std::vector<std::optional<Place>>& known) {
  std::vector<size_t> by_place(tensors.size());
  for (size_t i = 0; i < by_place.size(); ++i) by_place[i] = i;
  std::sort(by_place.begin(), by_place.end(), [&](size_t a, size_t b) {
    if (known[a].has_value() != known[b].has_value()) return known[a].has_value();
    if (known[a] != known[b]) return known[a] < known[b];
    return NaturallyBefore(tensors[a].name, tensors[b].name);
  });
  std::vector<TensorInfo> sorted_tensors;
  std::vector<Member> sorted_members;
  for (const size_t i : by_place) {
    sorted_tensors.push_back(std::move(tensors[i]));
    sorted_members.push_back(members[i]);
  }
  tensors = std::move(sorted_tensors);
  members = std::move(sorted_members);
}

void TensorSet::Impl::BuildIndex() {
  index.clear();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto [at, inserted] = index.emplace(tensors[i].name, i);
    if (inserted) continue;
    const std::string& first = tensors[at->second].own_name;
    const std::string& second = tensors[i].own_name;
    Fail(ErrorKind::kBadInput, "{}: the tensor {} is there twice{}", path.string(), Quoted(tensors[i].name),
         first == second ? ""
                         : fmt::format(": the map names both {} and {} so", Quoted(first), Quoted(second)));
  }
}

TensorSet::TensorSet(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TensorSet::TensorSet(TensorSet&&) noexcept = default;
TensorSet& TensorSet::operator=(TensorSet&&) noexcept = default;
TensorSet::~TensorSet() = default;

TensorSet TensorSet::Open(const fs::path& path) {
  auto impl = std::make_unique<Impl>(path);
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    const std::string own = path.extension() == ".npy" ? path.stem().string() : "";
    impl->AddAll(own, impl->File(path));
  } else if (fs::exists(path / "manifest.json", error)) {
    impl->AddManifest();
    if (TellsOrder(impl->manifest)) impl->order = TensorOrder::kManifest;
  } else {
    impl->AddFolder();
  }
  if (impl->order == TensorOrder::kUnknown) impl->FindOrder();
  if (impl->tensors.empty()) {
    const bool is_run = fs::is_directory(path / "ref", error) || fs::is_directory(path / "cpp", error);
    Fail(ErrorKind::kBadInput,
         "{} holds no tensors: neither a run's manifest nor .npy, .npz or .safetensors{}", path.string(),
         is_run ? "; give its folder ref or cpp" : "");
  }
  impl->BuildIndex();
  return TensorSet(std::move(impl));
}

const fs::path& TensorSet::path() const { return impl_->path; }
const Json& TensorSet::manifest() const { return impl_->manifest; }
const std::vector<TensorInfo>& TensorSet::tensors() const { return impl_->tensors; }

TensorOrder TensorSet::order() const { return impl_->order; }

const TensorInfo* TensorSet::Find(const std::string& name) const {
  const auto found = impl_->index.find(name);
  return found == impl_->index.end() ? nullptr : &impl_->tensors[found->second];
}

void TensorSet::Read(const TensorInfo& tensor, int64_t begin, int64_t count, double* out) const {
  if (count <= 0) return;
  Impl& impl = *impl_;
  const Impl::Member member = impl.members[impl.index.at(tensor.name)];
  if (begin < 0 || begin > tensor.count || count > tensor.count - begin)
    Fail(ErrorKind::kInternal, "elements beyond the end of {} are asked for", Quoted(tensor.name));
  const auto bytes = static_cast<uint64_t>(count * member.file->members()[member.index].type->bytes);
  impl.read_bytes += bytes;
  if (impl.last_read && (impl.last_read != member.file || impl.read_bytes > kReleaseAfter)) {
    impl.last_read->Release();
    impl.read_bytes = bytes;
  }
  impl.last_read = member.file;
  member.file->Read(member.index, begin, count, out);
}

std::vector<float> TensorSet::ReadAll(const TensorInfo& tensor) const {
  std::vector<float> values(static_cast<size_t>(tensor.count));
  std::vector<double> piece(static_cast<size_t>(std::min(kPiece, tensor.count)));
  for (int64_t begin = 0; begin < tensor.count; begin += kPiece) {
    const int64_t count = std::min(kPiece, tensor.count - begin);
    Read(tensor, begin, count, piece.data());
    std::copy_n(piece.data(), count, values.begin() + begin);
  }
  return values;
}

void TensorSet::Rename(const std::function<std::string(const std::string&)>& new_name) {
  for (TensorInfo& tensor : impl_->tensors) tensor.name = new_name(tensor.own_name);
  impl_->BuildIndex();
}

}  // namespace qwen_image::record
