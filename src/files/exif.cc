#include "files/exif.h"

namespace qwen_image {
namespace {

using namespace std::string_view_literals;  // for bytes with NULs in them

// Tags, and types of fields.
constexpr uint32_t kSoftware = 0x0131, kExifDirectory = 0x8769, kUserComment = 0x9286;
constexpr uint32_t kByte = 1, kAscii = 2, kShort = 3, kLong = 4, kUndefined = 7, kSignedShort = 8,
                   kSignedLong = 9;

// What a comment begins with: the name of its character set. For UTF-8 there is none.
constexpr std::string_view kNoCharacterSet = "\0\0\0\0\0\0\0\0"sv;

}  // namespace

std::optional<Exif> Exif::Open(std::string_view bytes) {
  constexpr std::string_view kPrefix = "Exif\0\0"sv;
  for (int i = 0; i < 2; ++i) {  // some programs write it twice
    if (bytes.starts_with(kPrefix)) bytes.remove_prefix(kPrefix.size());
  }
  const bool big_endian = bytes.starts_with("MM");
  if (!big_endian && !bytes.starts_with("II")) return std::nullopt;
  const std::string_view version = bytes.substr(2, 2);
  if (version != "*\0"sv && version != "\0*"sv) return std::nullopt;
  return Exif(bytes, big_endian);
}

std::optional<uint32_t> Exif::Number(uint64_t at, uint64_t size) const {
  if (at > bytes_.size() || size > bytes_.size() - at) return std::nullopt;
  uint32_t value = 0;
  for (uint64_t i = 0; i < size; ++i) {
    const uint64_t byte = big_endian_ ? at + i : at + size - 1 - i;
    value = value << 8 | static_cast<uint8_t>(bytes_[byte]);
  }
  return value;
}

uint64_t Exif::first_directory() const { return Number(4, 4).value_or(0); }

std::vector<uint64_t> Exif::Fields(uint64_t directory, uint32_t wanted) const {
  std::vector<uint64_t> fields;
  const uint64_t count = Number(directory, 2).value_or(0);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t field = directory + 2 + i * 12;
    const std::optional<uint32_t> tag = Number(field, 2);
    if (!tag) break;
    if (*tag == wanted) fields.push_back(field);
  }
  return fields;
}

std::optional<uint32_t> Exif::Value(uint64_t field) const {
  const uint32_t type = Number(field + 2, 2).value_or(0);
  const uint64_t unit = type == kShort || type == kSignedShort ? 2
                        : type == kLong || type == kSignedLong ? 4
                                                               : 0;
  const uint64_t count = Number(field + 4, 4).value_or(0);
  const std::optional<uint32_t> data = Number(field + 8, 4);  // or where it is
  const uint64_t size = unit * count;
  if (size == 0 || !data) return std::nullopt;
  if (size <= 4) return Number(field + 8, unit);
  if (size > bytes_.size() || *data > bytes_.size() - size) return std::nullopt;
  return Number(*data, unit);
}

std::optional<std::string_view> Exif::Bytes(uint64_t field) const {
  const uint32_t type = Number(field + 2, 2).value_or(0);
  const std::optional<uint32_t> size = Number(field + 4, 4), data = Number(field + 8, 4);
  if ((type != kByte && type != kAscii && type != kUndefined) || !size || !data) return std::nullopt;
  if (*size <= 4) return bytes_.substr(field + 8, *size);
  if (*size > bytes_.size() || *data > bytes_.size() - *size) return std::nullopt;
  return bytes_.substr(*data, *size);
}

std::string_view ExifComment(std::string_view bytes) {
  const std::optional<Exif> exif = Exif::Open(bytes);
  if (!exif) return {};
  for (const uint64_t pointer : exif->Fields(exif->first_directory(), kExifDirectory)) {
    for (const uint64_t field : exif->Fields(exif->Value(pointer).value_or(0), kUserComment)) {
      const std::string_view comment = exif->Bytes(field).value_or(std::string_view());
      if (comment.starts_with(kNoCharacterSet)) return comment.substr(kNoCharacterSet.size());
    }
  }
  return {};
}

std::string ExifWith(const std::string& comment, const std::string& software) {
  std::string bytes;
  const auto add = [&bytes](uint64_t value, int size) {  // little-endian
    for (int i = 0; i < size; ++i) bytes += static_cast<char>(value >> 8 * i & 0xff);
  };
  const auto add_field = [&](uint32_t tag, uint32_t type, uint64_t count, uint64_t data) {
    add(tag, 2);
    add(type, 2);
    add(count, 4);
    add(data, 4);
  };
  // A header of 8 bytes, a directory of two fields, one of one field, then the texts.
  constexpr uint64_t kFirst = 8, kSecond = kFirst + 2 + 2 * 12 + 4, kTexts = kSecond + 2 + 12 + 4;
  const std::string name = software + std::string(software.size() < 4 ? 5 - software.size() : 1, '\0');
  bytes += "II*\0"sv;
  add(kFirst, 4);
  add(2, 2);
  add_field(kSoftware, kAscii, name.size(), kTexts);
  add_field(kExifDirectory, kLong, 1, kSecond);
  add(0, 4);  // no further directory
  add(1, 2);
  add_field(kUserComment, kUndefined, kNoCharacterSet.size() + comment.size(), kTexts + name.size());
  add(0, 4);
  bytes += name;
  bytes += kNoCharacterSet;
  bytes += comment;
  return bytes;
}

}  // namespace qwen_image
