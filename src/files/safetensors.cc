#include "files/safetensors.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/block_format.h"
#include "core/fail.h"
#include "files/json.h"
#include "files/text.h"

namespace qwen_image {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the official library
constexpr size_t kMaxSafetensorsDimensions = 32;   // torch and numpy stop there or not far above

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

uint64_t ReadLittleEndian64(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | std::to_integer<uint64_t>(bytes[static_cast<size_t>(i)]);
  return value;
}

// What people really have under the name of a safetensors file when it is not one.
std::string_view LikelyCause(std::span<const std::byte> bytes) {
  const std::string_view text = AsText(bytes);
  if (text.starts_with("version https://git-lfs")) {
    return "it is a Git LFS pointer, not the data: run 'git lfs pull' or download the file itself";
  }
  if (text.starts_with("<")) return "it looks like a web page saved under this name";
  if (text.starts_with("PK\x03\x04")) return "it is a zip archive, perhaps a PyTorch .bin or .pt file";
  if (text.starts_with("GGUF")) return "it is a GGUF file";
  return "the download may be incomplete, or it is not a safetensors file";
}

// Where a tensor's bytes are said to be, counted from the end of the header.
struct Span {
  uint64_t begin = 0;
  uint64_t end = 0;
  std::string name;
};

class HeaderReader {
 public:
  HeaderReader(const std::string& path, std::span<const std::byte> data) : path_(path), data_(data) {}

  std::map<std::string, std::string> Metadata(const Json& value) const {
    std::map<std::string, std::string> metadata;
    if (value.is_null()) return metadata;  // as MLX writes it
    if (!value.is_object()) Refuse("__metadata__ is {}, an object is expected", value.type_name());
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) {
        Refuse("__metadata__ has {} for {}, a string is expected", text.type_name(), Quoted(key));
      }
      metadata[key] = text.get<std::string>();
    }
    return metadata;
  }

  StoredTensor Tensor(const std::string& name, const Json& value) {
    if (!value.is_object())
      Refuse("tensor {}: {} found, an object is expected", Quoted(name), value.type_name());
    StoredTensor entry;
    const Json& dtype = Member(name, value, "dtype");
    if (!dtype.is_string())
      Refuse("tensor {}: dtype is {}, a string is expected", Quoted(name), dtype.type_name());
    entry.dtype = ReadType(name, dtype.get_ref<const std::string&>());
    entry.shape = ReadShape(name, Member(name, value, "shape"));
    const int64_t expected = ByteCount(name, entry);
    const auto [begin, end] = ReadOffsets(name, Member(name, value, "data_offsets"));
    if (end - begin != static_cast<uint64_t>(expected)) {
      Refuse("tensor {}: its data_offsets span {} bytes, but shape {} of {} needs {}", Quoted(name),
             end - begin, ToString(entry.shape), NameOf(entry.dtype), expected);
    }
    entry.bytes = data_.subspan(begin, end - begin);
    spans_.push_back({begin, end, name});
    return entry;
  }

  // The tensors must cover the data without a gap or an overlap, as the official library demands: bytes that
  // belong to nothing can hide a second file, and shared ones an error of the writer.
  void CheckCoverage() {
    std::sort(spans_.begin(), spans_.end(), [](const Span& a, const Span& b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    uint64_t covered = 0;
    for (size_t i = 0; i < spans_.size(); ++i) {
      const Span& span = spans_[i];
      if (span.begin < covered) {
        Refuse("tensor {} starts at byte {} of the data and overlaps {}, which ends at {}", Quoted(span.name),
               span.begin, Quoted(spans_[i - 1].name), covered);
      }
      if (span.begin > covered) {
        Refuse("bytes {} to {} of the data, before tensor {}, belong to no tensor", covered, span.begin,
               Quoted(span.name));
      }
      covered = span.end;
    }
    if (covered != data_.size()) {
      Refuse(
          "the tensors end at byte {} of the data, but there are {}; the file may come from two downloads "
          "mixed up",
          covered, data_.size());
    }
  }

 private:
  template <typename... Args>
  [[noreturn]] void Refuse(fmt::format_string<Args...> format, Args&&... args) const {
    Fail(ErrorKind::kBadInput, "{}: {}", path_, fmt::format(format, std::forward<Args>(args)...));
  }

  const Json& Member(const std::string& name, const Json& tensor, const char* key) const {
    const auto found = tensor.find(key);
    if (found == tensor.end()) Refuse("tensor {}: {} is missing in the header", Quoted(name), key);
    return *found;
  }

  DType ReadType(const std::string& name, const std::string& dtype) const {
    if (const BlockFormat* type = FindSafetensorsType(dtype)) return type->dtype;
    Refuse("tensor {}: unknown dtype {}; the file may be damaged or newer than this program", Quoted(name),
           Quoted(dtype));
  }

  Shape ReadShape(const std::string& name, const Json& value) const {
    if (!value.is_array())
      Refuse("tensor {}: shape is {}, an array is expected", Quoted(name), value.type_name());
    if (value.size() > kMaxSafetensorsDimensions) {
      Refuse("tensor {}: {} dimensions, at most {} are expected", Quoted(name), value.size(),
             kMaxSafetensorsDimensions);
    }
    Shape shape;
    for (const Json& dimension : value) {
      // nlohmann keeps whole numbers that are not negative, and only those, as number_unsigned.
      if (!dimension.is_number_unsigned() ||
          dimension.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        Refuse("tensor {}: {} is not a dimension of a shape", Quoted(name), Printable(dimension.dump(), 40));
      }
      shape.push_back(dimension.get<int64_t>());
    }
    return shape;
  }

  int64_t ByteCount(const std::string& name, const StoredTensor& entry) const {
    auto count = static_cast<int64_t>(SizeOf(entry.dtype));
    bool empty = false;
    // The product of all other dimensions must fit even if one is 0, so that no part of the shape can wrap
    // later.
    for (const int64_t dimension : entry.shape) {
      if (dimension == 0) {
        empty = true;
      } else if (__builtin_mul_overflow(count, dimension, &count)) {
        Refuse("tensor {}: shape {} of {} is larger than any memory", Quoted(name), ToString(entry.shape),
               NameOf(entry.dtype));
      }
    }
    return empty ? 0 : count;
  }

  std::pair<uint64_t, uint64_t> ReadOffsets(const std::string& name, const Json& value) const {
    if (!value.is_array() || value.size() != 2 || !value[0].is_number_unsigned() ||
        !value[1].is_number_unsigned()) {
      Refuse("tensor {}: data_offsets are {}, two whole numbers that are not negative are expected",
             Quoted(name), Printable(value.size() > 2 ? std::string(value.type_name()) : value.dump(), 80));
    }
    const uint64_t begin = value[0].get<uint64_t>();
    const uint64_t end = value[1].get<uint64_t>();
    if (begin > end) Refuse("tensor {}: data_offsets [{}, {}] are reversed", Quoted(name), begin, end);
    if (end > data_.size()) {
      Refuse("tensor {} ends at byte {} of the data, but the file holds {}; the download may be incomplete",
             Quoted(name), end, data_.size());
    }
    return {begin, end};
  }

  const std::string& path_;
  std::span<const std::byte> data_;  // what follows the header
  std::vector<Span> spans_;
};

Json ReadHeader(const std::string& path, std::span<const std::byte> bytes, uint64_t* data_begin) {
  if (bytes.size() < kLengthBytes) {
    Fail(ErrorKind::kBadInput,
         "{} has {} bytes, too few for a safetensors file; the download may be incomplete", path,
         bytes.size());
  }
  const uint64_t length = ReadLittleEndian64(bytes);
  const uint64_t rest = bytes.size() - kLengthBytes;
  if (length == 0 || length > kMaxHeaderBytes || length > rest) {
    Fail(ErrorKind::kBadInput, "{}: a header of {} bytes is announced, and 1 to {} are possible; {}", path,
         length, std::min(rest, kMaxHeaderBytes), LikelyCause(bytes));
  }
  *data_begin = kLengthBytes + length;
  Json header = ParseJson(AsText(bytes.subspan(kLengthBytes, length)), path + " (its header)");
  if (!header.is_object()) {
    Fail(ErrorKind::kBadInput, "{}: the header is {}, a JSON object is expected", path, header.type_name());
  }
  return header;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : WeightFile(path) {
  const std::string name = path.string();
  uint64_t data_begin = 0;
  const Json header = ReadHeader(name, file_.bytes(), &data_begin);
  HeaderReader reader(name, file_.bytes().subspan(data_begin));
  for (const auto& [key, value] : header.items()) {
    if (key == "__metadata__") {
      metadata_ = reader.Metadata(value);
    } else {
      tensors_.emplace(key, reader.Tensor(key, value));
    }
  }
  reader.CheckCoverage();
  file_.ThrowIfDamaged();
}

}  // namespace qwen_image
