#include "parity/record/tensor_file.h"

#include <algorithm>
#include <numeric>

#include "core/fail.h"
#include "files/mmap.h"
#include "files/npy_header.h"
#include "files/npz.h"
#include "files/safetensors.h"
#include "files/text.h"

namespace qwen_image::record {
namespace {

constexpr int64_t kMostUnpacked = int64_t{1} << 30;  // bytes

class NpyTensors : public TensorFile {
 public:
  explicit NpyTensors(const std::filesystem::path& path) : path_(path) {
    const MappedFile file(path);
    header_ = ParseNpyHeader(file.bytes(), file.bytes().size(), path.string());
    file_bytes_ = file.bytes().size();
    members_.push_back({"", header_.shape, header_.type, header_.count});
  }

  void Read(size_t, int64_t begin, int64_t count, double* out) override {
    if (!file_) file_.emplace(path_);
    if (file_->bytes().size() != file_bytes_)
      Fail(ErrorKind::kBadInput, "{} changed its size while it was read", path_.string());
    const std::span<const std::byte> data = file_->bytes().subspan(header_.data_begin);
    if (header_.plain()) {
      ConvertElements(header_.type->dtype, data.data() + begin * header_.type->bytes, count, out);
    } else {
      ConvertElements(header_.type->dtype, PlainElements(header_, data, begin, count).data(), count, out);
    }
    file_->ThrowIfDamaged();
  }

  // The file is unmapped entirely: a folder may hold more files than a process may map.
  void Release() override { file_.reset(); }

 private:
  std::filesystem::path path_;
  size_t file_bytes_ = 0;
  NpyHeader header_;
  std::optional<MappedFile> file_;
};

class NpzTensors : public TensorFile {
 public:
  explicit NpzTensors(const std::filesystem::path& path) : file_(path) {
    for (const NpzMember& member : file_.members())
      members_.push_back({member.name, member.header.shape, member.header.type, member.header.count});
  }

  void Read(size_t member, int64_t begin, int64_t count, double* out) override {
    NpyHeader header = file_.members()[member].header;
    if (header.fortran_order) {
      // Neighbours lie far apart: the member is unpacked as a whole.
      if (header.count > kMostUnpacked / header.type->bytes)
        Fail(ErrorKind::kBadInput,
             "member {} of a .npz is in Fortran order and has more than {} MB; save it with "
             "numpy.ascontiguousarray()",
             Quoted(members_[member].name), kMostUnpacked >> 20);
      if (unpacked_ != member) Unpack(member, 0, header.count);
      unpacked_ = member;
    } else {
      Unpack(member, begin, count);
      begin = 0;
    }
    if (header.plain()) {
      ConvertElements(header.type->dtype, buffer_.data(), count, out);
    } else {
      ConvertElements(header.type->dtype, PlainElements(header, buffer_, begin, count).data(), count, out);
    }
  }

  void Release() override {
    file_.ReleasePages();
    unpacked_.reset();
    buffer_ = {};
  }

 private:
  void Unpack(size_t member, int64_t begin, int64_t count) {
    unpacked_.reset();
    const int64_t bytes = members_[member].type->bytes;
    buffer_.resize(static_cast<size_t>(count * bytes));
    file_.Read(member, static_cast<uint64_t>(begin * bytes), buffer_);
  }

  NpzFile file_;
  std::vector<std::byte> buffer_;
  std::optional<size_t> unpacked_;  // the member that is in `buffer_` as a whole
};

class SafetensorsTensors : public TensorFile {
 public:
  explicit SafetensorsTensors(const std::filesystem::path& path) : file_(path) {
    for (const auto& [name, entry] : file_.tensors()) {
      const BlockFormat& type = FormatOf(entry.dtype);
      if (type.numpy.empty()) {
        Fail(ErrorKind::kBadInput, "{}: tensor {} has elements of type {}, which cannot be compared",
             path.string(), Quoted(name), type.name);
      }
      members_.push_back({name, entry.shape, &type, static_cast<int64_t>(entry.bytes.size()) / type.bytes});
      data_.push_back(entry.bytes.data());
    }
    SortByOffset();
  }

  void Read(size_t member, int64_t begin, int64_t count, double* out) override {
    const BlockFormat& type = *members_[member].type;
    ConvertElements(type.dtype, data_[member] + static_cast<size_t>(begin * type.bytes), count, out);
    file_.file().ThrowIfDamaged();
  }

  void Release() override { file_.file().ReleasePages(); }

 private:
  // The header's keys come in any order; the values lie as they were written.
  void SortByOffset() {
    std::vector<size_t> order(members_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return data_[a] < data_[b]; });
    std::vector<Member> members;
    std::vector<const std::byte*> data;
    for (const size_t i : order) {
      members.push_back(std::move(members_[i]));
      data.push_back(data_[i]);
    }
    members_ = std::move(members);
    data_ = std::move(data);
  }

  SafetensorsFile file_;
  std::vector<const std::byte*> data_;
};

}  // namespace

std::optional<size_t> TensorFile::Find(const std::string& name) {
  if (index_.empty()) {
    for (size_t i = 0; i < members_.size(); ++i) index_.emplace(members_[i].name, i);
  }
  const auto found = index_.find(name);
  return found == index_.end() ? std::nullopt : std::optional(found->second);
}

bool IsTensorFile(const std::filesystem::path& path) {
  const std::filesystem::path extension = path.extension();
  return extension == ".npy" || extension == ".npz" || extension == ".safetensors";
}

std::unique_ptr<TensorFile> OpenTensorFile(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) Fail(ErrorKind::kBadInput, "{} does not exist", path.string());
  const std::filesystem::path extension = path.extension();
  if (extension == ".npy") return std::make_unique<NpyTensors>(path);
  if (extension == ".npz") return std::make_unique<NpzTensors>(path);
  if (extension == ".safetensors") return std::make_unique<SafetensorsTensors>(path);
  Fail(ErrorKind::kBadInput, "{} is not a file of tensors: .npy, .npz or .safetensors is expected{}",
       path.string(),
       extension == ".pt" || extension == ".pth" || extension == ".bin"
           ? " (PyTorch's own files can run code; convert them with tools/reference/import_run.py)"
           : "");
}

}  // namespace qwen_image::record
