#include "files/npz.h"

#include <zip.h>

#include <algorithm>
#include <limits>
#include <set>

#include "core/fail.h"
#include "files/deflate.h"
#include "files/mmap.h"
#include "files/safe_path.h"
#include "files/text.h"

namespace qwen_image {
namespace {

struct Closer {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};
using Archive = std::unique_ptr<zip_t, Closer>;
using OpenMember = std::unique_ptr<zip_file_t, Closer>;

std::string TextOf(zip_error_t* error) {
  const std::string text = Printable(zip_error_strerror(error));
  zip_error_fini(error);
  return text;
}

Archive OpenArchive(const MappedFile& file) {
  const auto bytes = file.bytes();
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error);
  zip_t* archive = source ? zip_open_from_source(source, ZIP_RDONLY, &error) : nullptr;
  if (!archive) {
    if (source) zip_source_free(source);
    Fail(ErrorKind::kBadInput, "{} is not a zip archive as .npz files are, or it is incomplete: {}",
         file.path().string(), TextOf(&error));
  }
  zip_error_fini(&error);
  return Archive(archive);
}

}  // namespace

struct NpzFile::Impl {
  explicit Impl(const std::filesystem::path& path) : file(path), archive(OpenArchive(file)) {}

  std::string Where(size_t i) const {
    return fmt::format("{}: member {}", file.path().string(), Quoted(members[i].name + ".npy"));
  }

  // Appends what is at `index` of the archive to `members`.
  void AddMember(zip_uint64_t index);
  void Restart(size_t i);
  void ReadBytes(std::byte* out, uint64_t count);

  MappedFile file;  // before `archive`, which reads from it
  Archive archive;
  std::vector<NpzMember> members;
  std::vector<zip_uint64_t> indices;  // of the members in the archive
  std::vector<uint64_t> sizes;        // unpacked, with the header
  uint64_t packed_total = 0;

  // The member that is being read, and how far.
  OpenMember open;
  size_t open_index = std::numeric_limits<size_t>::max();
  uint64_t position = 0;
};

void NpzFile::Impl::AddMember(zip_uint64_t index) {
  const std::string path = file.path().string();
  zip_stat_t status;
  const char* raw_name = zip_get_name(archive.get(), index, ZIP_FL_ENC_GUESS);
  constexpr zip_uint64_t kNeeded =
      ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  if (!raw_name || zip_stat_index(archive.get(), index, 0, &status) != 0 ||
      (status.valid & kNeeded) != kNeeded) {
    Fail(ErrorKind::kBadInput, "{}: the entry of member {} in its directory is broken", path, index);
  }
  std::string name = raw_name;
  if (name.ends_with('/') && status.size == 0) return;  // a folder, which says nothing
  const auto refuse = [&](std::string_view why) {
    Fail(ErrorKind::kBadInput, "{}: member {} {}", path, Quoted(name), why);
  };
  if (!StaysInside(name) || name.find('\\') != name.npos) refuse("has a name that leads out of the archive");
  if (!name.ends_with(".npy")) refuse("is not a .npy file; an .npz archive holds nothing else");
  if (status.encryption_method != ZIP_EM_NONE) refuse("is encrypted");
  if (status.comp_method != ZIP_CM_STORE && status.comp_method != ZIP_CM_DEFLATE)
    refuse("is compressed in another way than numpy.savez_compressed does");
  // Members that share bytes are the trick of small archives that unpack to anything.
  if (__builtin_add_overflow(packed_total, status.comp_size, &packed_total) ||
      packed_total > file.bytes().size())
    refuse("claims more packed bytes than the archive has");
  if (status.size / kMaxDeflateRatio > status.comp_size)
    refuse("claims more bytes than its packed ones can hold");

  members.push_back({.name = name.substr(0, name.size() - 4), .header = {}});
  indices.push_back(index);
  sizes.push_back(status.size);
  const size_t i = members.size() - 1;
  std::vector<std::byte> start(std::min<uint64_t>(status.size, kMaxNpyHeaderBytes));
  Restart(i);
  ReadBytes(start.data(), start.size());
  members[i].header = ParseNpyHeader(start, status.size, Where(i));
}

void NpzFile::Impl::Restart(size_t i) {
  open_index = i;
  position = 0;
  open.reset(zip_fopen_index(archive.get(), indices[i], 0));
  if (!open)
    Fail(ErrorKind::kBadInput, "{} cannot be opened: {}", Where(i), Printable(zip_strerror(archive.get())));
}

void NpzFile::Impl::ReadBytes(std::byte* out, uint64_t count) {
  const auto refuse = [&](const std::string& why) {
    Fail(ErrorKind::kBadInput, "{} is damaged: {}", Where(open_index), why);
  };
  while (count > 0) {
    const zip_int64_t got = zip_fread(open.get(), out, count);
    if (got < 0) refuse(Printable(zip_file_strerror(open.get())));
    if (got == 0) refuse(fmt::format("it ends after {} of {} bytes", position, sizes[open_index]));
    out += got;
    count -= static_cast<uint64_t>(got);
    position += static_cast<uint64_t>(got);
  }
  if (position < sizes[open_index]) return;
  char beyond;
  const zip_int64_t more = zip_fread(open.get(), &beyond, 1);  // checks the checksum
  if (more < 0) refuse(Printable(zip_file_strerror(open.get())));
  if (more > 0) refuse(fmt::format("it is longer than the {} bytes it claims", sizes[open_index]));
}

NpzFile::NpzFile(const std::filesystem::path& path) : impl_(std::make_unique<Impl>(path)) {
  const zip_int64_t count = zip_get_num_entries(impl_->archive.get(), 0);
  std::set<std::string> names;
  for (zip_int64_t i = 0; i < count; ++i) {
    impl_->AddMember(static_cast<zip_uint64_t>(i));
    if (!impl_->members.empty()) names.insert(impl_->members.back().name);
    if (names.size() != impl_->members.size()) {
      Fail(ErrorKind::kBadInput, "{}: member {} is there twice", path.string(),
           Quoted(impl_->members.back().name));
    }
  }
  if (impl_->members.empty()) Fail(ErrorKind::kBadInput, "{}: the archive is empty", path.string());
}

NpzFile::NpzFile(NpzFile&&) noexcept = default;
NpzFile& NpzFile::operator=(NpzFile&&) noexcept = default;
NpzFile::~NpzFile() = default;

const std::vector<NpzMember>& NpzFile::members() const { return impl_->members; }

void NpzFile::Read(size_t index, uint64_t offset, std::span<std::byte> out) const {
  Impl& impl = *impl_;
  const NpyHeader& header = impl.members.at(index).header;
  const uint64_t begin = header.data_begin + offset;
  if (offset > impl.sizes[index] || out.size() > impl.sizes[index] - std::min(begin, impl.sizes[index]))
    Fail(ErrorKind::kInternal, "{}: bytes beyond its end are asked for", impl.Where(index));
  if (impl.open_index != index || begin < impl.position) impl.Restart(index);
  std::byte skipped[16384];
  while (impl.position < begin)
    impl.ReadBytes(skipped, std::min<uint64_t>(sizeof(skipped), begin - impl.position));
  if (!out.empty()) impl.ReadBytes(out.data(), out.size());
  impl.file.ThrowIfDamaged();
}

void NpzFile::ReleasePages() const { impl_->file.ReleasePages(); }

}  // namespace qwen_image
