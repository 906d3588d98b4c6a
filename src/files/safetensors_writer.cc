#include "files/safetensors_writer.h"

#include "core/block_format.h"
#include "core/fail.h"
#include "files/json.h"
#include "files/text.h"

namespace qwen_image {
namespace {

int64_t ValueBytes(std::span<const PlannedTensor> tensors) {
  int64_t total = 0;
  for (const PlannedTensor& tensor : tensors) total += tensor.bytes();
  return total;
}

// Its length in 8 bytes, the JSON, and spaces that let the values begin at a multiple of 8.
std::string Header(std::span<const PlannedTensor> tensors, const SafetensorsWriter::Metadata& metadata) {
  constexpr size_t kAlignment = 8;
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t begin = 0;
  for (const PlannedTensor& tensor : tensors) {
    if (!IsUtf8(tensor.name)) {
      Fail(ErrorKind::kBadInput, "the name of tensor {} is not UTF-8 and cannot be written",
           Quoted(tensor.name));
    }
    const int64_t end = begin + tensor.bytes();
    const Json entry = {
        {"dtype", NameOf(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    if (!header.emplace(tensor.name, entry).second) {
      Fail(ErrorKind::kBadInput, "two tensors would be written under the name {}", Quoted(tensor.name));
    }
    begin = end;
  }
  std::string text = header.dump();
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  std::string bytes;
  for (size_t i = 0; i < kAlignment; ++i) bytes += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return bytes + text;
}

}  // namespace

int64_t PlannedTensor::bytes() const {
  const BlockFormat& type = FormatOf(dtype);
  if (!type.safetensors) Fail(ErrorKind::kInternal, "tensor {} is planned as {}", Quoted(name), type.name);
  return type.bytes * ElementCount(shape);
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::span<const PlannedTensor> tensors, const Metadata& metadata,
                                     OutputFile::Folder folder)
    : file_(path, folder), path_(path.string()), missing_(ValueBytes(tensors)) {
  const std::string header = Header(tensors, metadata);
  file_.Write(header.data(), header.size());
}

void SafetensorsWriter::Append(std::span<const std::byte> bytes) {
  missing_ -= static_cast<int64_t>(bytes.size());
  if (missing_ < 0) Fail(ErrorKind::kInternal, "{} gets {} bytes more than planned", path_, -missing_);
  file_.Write(bytes.data(), bytes.size());
}

void SafetensorsWriter::Finish() {
  if (missing_ != 0) Fail(ErrorKind::kInternal, "{} lacks {} planned bytes", path_, missing_);
  file_.Sync();
  file_.Commit();
}

int64_t SafetensorsWriter::FileBytes(std::span<const PlannedTensor> tensors, const Metadata& metadata) {
  return static_cast<int64_t>(Header(tensors, metadata).size()) + ValueBytes(tensors);
}

}  // namespace qwen_image
