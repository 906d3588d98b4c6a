#include "files/npy.h"

#include "core/fail.h"
#include "files/mmap.h"
#include "files/npy_header.h"
#include "files/output_file.h"

namespace qwen_image {
namespace {

// What stands before the elements.
std::string NpyStart(std::string_view descr, const Shape& shape) {
  std::string tuple;
  for (const int64_t dimension : shape) tuple += fmt::format("{}, ", dimension);
  if (shape.size() > 1) tuple.resize(tuple.size() - 2);
  if (shape.size() == 1) tuple.resize(tuple.size() - 1);
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, tuple);
  // As NumPy does: the data start at a multiple of 64 bytes, and the header ends with a line feed.
  const size_t before = kNpyMagic.size() + 2 + 2;
  header.resize((before + header.size() + 1 + 63) / 64 * 64 - before - 1, ' ');
  header += '\n';
  if (header.size() > 0xffff)
    Fail(ErrorKind::kInternal, "too many dimensions for a .npy file: {}", shape.size());
  std::string start(kNpyMagic);
  start += '\x01';
  start += '\0';
  start += static_cast<char>(header.size() & 0xff);
  start += static_cast<char>(header.size() >> 8);
  return start + header;
}

void WriteArray(const std::filesystem::path& path, const void* data, size_t element_size,
                std::string_view descr, const Shape& shape) {
  const size_t count = static_cast<size_t>(ElementCount(shape));
  const std::string start = NpyStart(descr, shape);
  OutputFile file(path);
  file.Write(start.data(), start.size());
  file.Write(data, count * element_size);
  file.Commit();
}

template <typename To>
void ReadElements(const NpyHeader& header, std::span<const std::byte> file, To* out) {
  const std::span<const std::byte> data = file.subspan(header.data_begin);
  if (header.plain()) return ConvertElements(header.type->dtype, data.data(), header.count, out);
  const std::vector<std::byte> plain = PlainElements(header, data, 0, header.count);
  ConvertElements(header.type->dtype, plain.data(), header.count, out);
}

}  // namespace

NpyArray ParseNpy(std::span<const std::byte> bytes, std::string_view where) {
  const NpyHeader header = ParseNpyHeader(bytes, bytes.size(), where);
  NpyArray array{header.shape, std::string(header.type->npy), {}};
  const auto read = [&](auto& values) {
    values.resize(static_cast<size_t>(header.count));
    ReadElements(header, bytes, values.data());
  };
  if (IsFloatingPoint(header.type->dtype)) {
    read(array.values.emplace<std::vector<float>>());
  } else {
    read(array.values.emplace<std::vector<int64_t>>());
  }
  return array;
}

NpyArray ReadNpy(const std::filesystem::path& path) {
  const MappedFile file(path);
  NpyArray array = ParseNpy(file.bytes(), path.string());
  file.ThrowIfDamaged();
  return array;
}

Tensor ReadNpyFloat(const std::filesystem::path& path) {
  const MappedFile file(path);
  const NpyHeader header = ParseNpyHeader(file.bytes(), file.bytes().size(), path.string());
  if (!IsFloatingPoint(header.type->dtype)) {
    Fail(ErrorKind::kBadInput, "{} holds elements of type {}; floats are expected", path.string(),
         header.type->npy);
  }
  Tensor tensor(header.shape);
  ReadElements(header, file.bytes(), tensor.data());
  file.ThrowIfDamaged();
  return tensor;
}

std::string EncodeNpy(std::span<const float> values, const Shape& shape) {
  if (static_cast<int64_t>(values.size()) != ElementCount(shape))
    Fail(ErrorKind::kInternal, "{} values are not an array of shape {}", values.size(), ToString(shape));
  return NpyStart("<f4", shape).append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

void WriteNpy(const std::filesystem::path& path, const float* data, const Shape& shape) {
  WriteArray(path, data, sizeof(*data), "<f4", shape);
}

void WriteNpy(const std::filesystem::path& path, const int64_t* data, const Shape& shape) {
  WriteArray(path, data, sizeof(*data), "<i8", shape);
}

void WriteNpy(const std::filesystem::path& path, const uint8_t* data, const Shape& shape) {
  WriteArray(path, data, sizeof(*data), "|u1", shape);
}

}  // namespace qwen_image
