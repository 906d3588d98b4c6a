#include "keep/tensor_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "core/fail.h"
#include "files/digest.h"
#include "files/safetensors.h"
#include "files/safetensors_writer.h"
#include "files/text.h"

namespace qwen_image::keep {
namespace {

constexpr const char* kChecksum = "checksum";
constexpr DType kFloat32 = DType::kF32;
constexpr uint64_t kMaxHeader = 1 << 20;  // token ids and settings need some kilobytes

std::span<const std::byte> BytesOf(const Tensor& tensor) {
  return std::as_bytes(std::span(tensor.data(), static_cast<size_t>(tensor.size())));
}

// Of everything but itself.
std::string Checksum(const TensorFile& kept) {
  Digest digest(Digest::Kind::kSha256, 0);
  const auto add = [&](const auto& bytes) {
    digest.Add(fmt::format("{} ", bytes.size()));
    digest.Add(bytes);
  };
  for (const auto& [key, value] : kept.metadata) {
    if (key == kChecksum) continue;
    add(key);
    add(value);
  }
  for (const auto& [name, tensor] : kept.tensors) {
    add(name);
    add(ToString(tensor.shape()));
    add(BytesOf(tensor));
  }
  return digest.Finish();
}

// Before the file is mapped and its header parsed.
void CheckSize(const std::filesystem::path& path, const ExpectedTensors& expected) {
  uint64_t bytes = 0;
  for (const auto& [name, shape] : expected.shapes)
    bytes += static_cast<uint64_t>(ElementCount(shape)) * sizeof(float);
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) Fail(ErrorKind::kBadInput, "cannot read {}: {}", path.string(), error.message());
  if (size < bytes || size > bytes + kMaxHeader)
    Fail(ErrorKind::kBadInput, "{} has {} bytes, but {} and a header are expected", path.string(), size,
         bytes);
}

void CheckMetadata(const std::string& path, const TensorFile& kept, const ExpectedTensors& expected) {
  for (const auto& [key, value] : expected.metadata) {
    const auto found = kept.metadata.find(key);
    if (found == kept.metadata.end() || found->second != value) {
      Fail(ErrorKind::kBadInput, "{} belongs to something else: its {} is {}, expected {}", path, key,
           found == kept.metadata.end() ? "missing" : Quoted(found->second), Quoted(value));
    }
  }
}

}  // namespace

void WriteTensorFile(const std::filesystem::path& path, const TensorFile& kept, OutputFile::Folder folder) {
  SafetensorsWriter::Metadata metadata = kept.metadata;
  metadata[kChecksum] = Checksum(kept);
  std::vector<PlannedTensor> planned;
  for (const auto& [name, tensor] : kept.tensors) planned.push_back({name, kFloat32, tensor.shape()});
  SafetensorsWriter writer(path, planned, metadata, folder);
  for (const auto& [name, tensor] : kept.tensors) writer.Append(BytesOf(tensor));
  writer.Finish();
}

TensorFile ReadTensorFile(const std::filesystem::path& path, const ExpectedTensors& expected) {
  CheckSize(path, expected);
  const SafetensorsFile file(path);
  TensorFile kept{.metadata = file.metadata(), .tensors = {}};
  CheckMetadata(path.string(), kept, expected);
  if (file.tensors().size() != expected.shapes.size())
    Fail(ErrorKind::kBadInput, "{} holds {} tensors, expected {}", path.string(), file.tensors().size(),
         expected.shapes.size());
  for (const auto& [name, shape] : expected.shapes) {
    const auto found = file.tensors().find(name);
    if (found == file.tensors().end() || found->second.dtype != kFloat32 || found->second.shape != shape) {
      Fail(ErrorKind::kBadInput, "{}: there is no tensor {} of {} with the shape {}", path.string(), name,
           NameOf(kFloat32), ToString(shape));
    }
    Tensor tensor(shape);
    if (tensor.size() > 0) std::memcpy(tensor.data(), found->second.bytes.data(), found->second.bytes.size());
    if (!std::all_of(tensor.data(), tensor.data() + tensor.size(), [](float v) { return std::isfinite(v); }))
      Fail(ErrorKind::kBadInput, "{}: tensor {} holds NaN or infinite values", path.string(), name);
    kept.tensors.emplace(name, std::move(tensor));
  }
  file.file().ThrowIfDamaged();
  const auto checksum = kept.metadata.find(kChecksum);
  if (checksum == kept.metadata.end() || checksum->second != Checksum(kept))
    Fail(ErrorKind::kBadInput, "{} is damaged: its checksum is not that of its content", path.string());
  return kept;
}

}  // namespace qwen_image::keep
