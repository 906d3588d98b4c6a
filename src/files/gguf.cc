#include "files/gguf.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <tuple>
#include <utility>

#include "core/block_format.h"
#include "core/fail.h"
#include "files/text.h"

namespace qwen_image {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr const char* kAlignmentKey = "general.alignment";
constexpr uint64_t kDefaultAlignment = 32;
constexpr std::string_view kShapeKeyPrefix = "comfy.gguf.orig_shape.";
constexpr uint32_t kMaxGgufDimensions = 4;       // ggml's
constexpr uint64_t kMaxRestoredDimensions = 32;  // as in safetensors
// The least that an entry takes: a length, a type and a byte; a length, a count, a type and an offset.
constexpr uint64_t kMinMetadataBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;

struct Header {
  uint64_t tensors = 0;
  uint64_t metadata = 0;
};

// A tensor as the file announces it.
struct TensorInfo {
  std::string name;
  const BlockFormat* type = nullptr;
  Shape shape;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // from the start of the data
};

void CheckVersion(uint32_t version, const GgufCursor& cursor) {
  if (version == 2 || version == 3) return;
  if (version != 0 && (version & 0xffff) == 0) {
    cursor.Refuse("a big-endian GGUF file; only little-endian ones are read, so it must be converted again");
  }
  cursor.Refuse("GGUF version {}, and 2 and 3 are read; {}", version,
                version < 2 ? "the file has the first version of the format and must be converted again"
                            : "the file may be damaged or newer than this program");
}

Header ReadHeader(std::span<const std::byte> bytes, GgufCursor& cursor) {
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()),
                               std::min<size_t>(bytes.size(), 4));
  if (start != kMagic) {
    cursor.Refuse("no GGUF file: it starts with {}, and \"GGUF\" is expected", Quoted(start));
  }
  cursor.Skip(kMagic.size());
  CheckVersion(cursor.Read<uint32_t>(), cursor);
  Header header;
  header.tensors = cursor.Read<uint64_t>();
  header.metadata = cursor.Read<uint64_t>();
  if (header.tensors > cursor.left() / kMinTensorBytes ||
      header.metadata > cursor.left() / kMinMetadataBytes) {
    cursor.Refuse(
        "{} tensors and {} metadata entries are announced, too many for a file of {} bytes; it may be "
        "damaged or "
        "incomplete",
        header.tensors, header.metadata, bytes.size());
  }
  return header;
}

std::string ReadName(GgufCursor& cursor) {
  const std::string_view name = cursor.ReadString();
  if (!IsUtf8(name)) cursor.RefuseHere("the name {} is not UTF-8; the file may be damaged", Quoted(name));
  return std::string(name);
}

uint64_t ReadAlignment(GgufType type, GgufCursor& cursor) {
  if (type != GgufType::kU32) cursor.RefuseHere("type {}, uint32 is expected", NameOf(type));
  const auto alignment = cursor.Read<uint32_t>();
  if (!std::has_single_bit(alignment)) {
    cursor.RefuseHere("{} is not an alignment; a power of two is expected; the file may be damaged",
                      alignment);
  }
  return alignment;
}

const BlockFormat* ReadTensorType(const std::string& name, GgufCursor& cursor) {
  const auto number = cursor.Read<uint32_t>();
  const BlockFormat* type = FindGgmlType(number);
  if (!type) {
    cursor.Refuse("tensor {}: unknown type {}; the file may be damaged or newer than this program",
                  Quoted(name), number);
  }
  if (type->bytes == 0) {
    cursor.Refuse("tensor {}: type {}, which ggml has given up; the model must be quantized again",
                  Quoted(name), type->name);
  }
  return type;
}

// ggml counts dimensions from the innermost.
Shape ReadShape(const std::string& name, GgufCursor& cursor) {
  const auto dimensions = cursor.Read<uint32_t>();
  if (dimensions > kMaxGgufDimensions) {
    cursor.Refuse("tensor {}: {} dimensions, at most {} are expected; the file may be damaged", Quoted(name),
                  dimensions, kMaxGgufDimensions);
  }
  Shape shape(dimensions);
  for (auto dimension = shape.rbegin(); dimension != shape.rend(); ++dimension) {
    const auto length = cursor.Read<uint64_t>();
    if (length == 0 || length > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      cursor.Refuse("tensor {}: {} is not a dimension of a shape; the file may be damaged", Quoted(name),
                    length);
    }
    *dimension = static_cast<int64_t>(length);
  }
  return shape;
}

uint64_t ByteCount(const TensorInfo& info, const GgufCursor& cursor) {
  const int64_t row = info.shape.empty() ? 1 : info.shape.back();
  if (row % info.type->values != 0) {
    cursor.Refuse("tensor {}: rows of {} values cannot be {}, whose blocks hold {}; the file may be damaged",
                  Quoted(info.name), row, info.type->name, info.type->values);
  }
  // In this order no step exceeds the number of elements or that of bytes, whichever is larger.
  int64_t elements = 1, bytes = 0;
  bool overflows = false;
  for (const int64_t dimension : info.shape)
    overflows |= __builtin_mul_overflow(elements, dimension, &elements);
  overflows = overflows || __builtin_mul_overflow(elements / info.type->values, info.type->bytes, &bytes);
  if (overflows) {
    cursor.Refuse("tensor {}: shape {} of {} is larger than any memory; the file may be damaged",
                  Quoted(info.name), ToString(info.shape), info.type->name);
  }
  return static_cast<uint64_t>(bytes);
}

std::vector<TensorInfo> ReadTensorInfos(uint64_t count, GgufCursor& cursor) {
  std::vector<TensorInfo> infos;
  for (uint64_t i = 0; i < count; ++i) {
    cursor.Enter(fmt::format("tensor {} of {}", i + 1, count));
    TensorInfo info;
    info.name = ReadName(cursor);
    cursor.Enter(fmt::format("tensor {}", Quoted(info.name)));
    info.shape = ReadShape(info.name, cursor);
    info.type = ReadTensorType(info.name, cursor);
    info.offset = cursor.Read<uint64_t>();
    info.bytes = ByteCount(info, cursor);
    infos.push_back(std::move(info));
  }
  return infos;
}

// The bytes between tensors are padding, whose length ggml's own reader derives from the alignment; here any
// will do, but no two tensors may share a byte.
void CheckOverlap(std::vector<TensorInfo>& infos, const GgufCursor& cursor) {
  std::sort(infos.begin(), infos.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.offset, a.name) < std::tie(b.offset, b.name);
  });
  for (size_t i = 1; i < infos.size(); ++i) {
    const TensorInfo &before = infos[i - 1], &info = infos[i];
    if (info.offset < before.offset + before.bytes) {
      cursor.Refuse(
          "tensor {} starts at byte {} of the data and overlaps {}, which ends at {}; the file may be "
          "damaged",
          Quoted(info.name), info.offset, Quoted(before.name), before.offset + before.bytes);
    }
  }
}

void CheckOffset(const TensorInfo& info, uint64_t alignment, uint64_t data_bytes, const GgufCursor& cursor) {
  if (info.offset % alignment != 0) {
    cursor.Refuse(
        "tensor {} starts at byte {} of the data, a multiple of {} is expected; the file may be damaged",
        Quoted(info.name), info.offset, alignment);
  }
  if (info.offset > data_bytes || info.bytes > data_bytes - info.offset) {
    cursor.Refuse(
        "tensor {}: {} bytes from byte {} of the data on are expected, but there are {} in all; the download "
        "may be "
        "incomplete",
        Quoted(info.name), info.bytes, info.offset, data_bytes);
  }
}

}  // namespace

GgufFile::GgufFile(const std::filesystem::path& path) : WeightFile(path) {
  const std::span<const std::byte> bytes = file_.bytes();
  GgufCursor cursor(path.string(), bytes);
  const Header header = ReadHeader(bytes, cursor);
  const uint64_t alignment = ReadMetadata(header.metadata, cursor);
  std::vector<TensorInfo> infos = ReadTensorInfos(header.tensors, cursor);
  const uint64_t data_begin = (cursor.position() + alignment - 1) / alignment * alignment;
  const uint64_t data_bytes = bytes.size() - std::min<uint64_t>(bytes.size(), data_begin);
  for (const TensorInfo& info : infos) {
    CheckOffset(info, alignment, data_bytes, cursor);
    StoredTensor tensor{info.type->dtype, info.shape, bytes.subspan(data_begin + info.offset, info.bytes)};
    RestoreShape(info.name, tensor);
    if (!tensors_.emplace(info.name, std::move(tensor)).second) {
      cursor.Refuse("tensor {} occurs twice; the file may be damaged", Quoted(info.name));
    }
  }
  CheckOverlap(infos, cursor);
  file_.ThrowIfDamaged();
}

uint64_t GgufFile::ReadMetadata(uint64_t count, GgufCursor& cursor) {
  uint64_t alignment = kDefaultAlignment;
  for (uint64_t i = 0; i < count; ++i) {
    cursor.Enter(fmt::format("metadata entry {} of {}", i + 1, count));
    const std::string key = ReadName(cursor);
    if (metadata_.contains(key) || arrays_.contains(key)) {
      cursor.Refuse("metadata {} occurs twice; the file may be damaged", Quoted(key));
    }
    cursor.Enter(fmt::format("metadata {}", Quoted(key)));
    const GgufType type = ReadType(cursor);
    if (key == kAlignmentKey) {
      alignment = ReadAlignment(type, cursor);
      metadata_[key] = fmt::format("{}", alignment);
    } else if (type == GgufType::kArray) {
      arrays_[key] = SkipArray(cursor);
    } else {
      metadata_[key] = ReadAsText(type, cursor);
    }
  }
  return alignment;
}

void GgufFile::RestoreShape(const std::string& name, StoredTensor& tensor) const {
  const std::string key = std::string(kShapeKeyPrefix) + name;
  const GgufArray* array = FindArray(key, IsInteger, "integers");
  if (!array) return;
  // Before it is read: it may be as large as the file.
  if (array->count > kMaxRestoredDimensions) {
    Fail(ErrorKind::kBadInput, "{}: metadata {} has {} dimensions, at most {} are expected", path().string(),
         Quoted(key), array->count, kMaxRestoredDimensions);
  }
  Shape shape = *IntArray(key);
  int64_t elements = 1;
  bool fits = true;
  for (const int64_t dimension : shape) {
    fits = fits && dimension > 0 && !__builtin_mul_overflow(elements, dimension, &elements);
  }
  if (!fits || elements != ElementCount(tensor.shape)) {
    Fail(ErrorKind::kBadInput,
         "{}: metadata {} is {}, which does not hold as many elements as the tensor's {}", path().string(),
         Quoted(key), ToString(shape), ToString(tensor.shape));
  }
  tensor.shape = std::move(shape);
}

const GgufArray* GgufFile::FindArray(std::string_view key, bool (*is_wanted)(GgufType),
                                     std::string_view wanted) const {
  const auto array = arrays_.find(key);
  if (array != arrays_.end() && is_wanted(array->second.type)) return &array->second;
  const bool single = metadata_.contains(std::string(key));
  if (array == arrays_.end() && !single) return nullptr;
  Fail(ErrorKind::kBadInput, "{}: metadata {} is {}, an array of {} is expected", path().string(),
       Quoted(key),
       single ? "a single value" : fmt::format("an array of type {}", NameOf(array->second.type)), wanted);
}

std::optional<std::vector<std::string>> GgufFile::StringArray(std::string_view key) const {
  const GgufArray* array = FindArray(
      key, [](GgufType type) { return type == GgufType::kString; }, "strings");
  if (!array) return std::nullopt;
  GgufCursor cursor(path().string(), file_.bytes(), array->begin);
  cursor.Enter(fmt::format("metadata {}", Quoted(key)));
  std::vector<std::string> strings;
  strings.reserve(array->count);
  for (uint64_t i = 0; i < array->count; ++i) strings.emplace_back(cursor.ReadString());
  file_.ThrowIfDamaged();
  return strings;
}

std::optional<std::vector<int64_t>> GgufFile::IntArray(std::string_view key) const {
  const GgufArray* array = FindArray(key, IsInteger, "integers");
  if (!array) return std::nullopt;
  GgufCursor cursor(path().string(), file_.bytes(), array->begin);
  cursor.Enter(fmt::format("metadata {}", Quoted(key)));
  std::vector<int64_t> values;
  values.reserve(array->count);
  for (uint64_t i = 0; i < array->count; ++i) values.push_back(ReadInteger(array->type, cursor));
  file_.ThrowIfDamaged();
  return values;
}

}  // namespace qwen_image
