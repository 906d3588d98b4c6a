// EXIF: fields in the structure of a TIFF file, of which pictures carry one as metadata. It is read from
// hostile bytes, and written with one text in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qwen_image {

// Views of bytes that must outlive it: numbers in either byte order, at offsets that may lead anywhere.
class Exif {
 public:
  static std::optional<Exif> Open(std::string_view bytes);  // none: it is no such structure

  uint64_t first_directory() const;
  // Where the fields with this tag are in a directory, as far as it can be read.
  std::vector<uint64_t> Fields(uint64_t directory, uint32_t tag) const;
  std::optional<uint32_t> Value(uint64_t field) const;          // its first number
  std::optional<std::string_view> Bytes(uint64_t field) const;  // of a field of bytes

 private:
  Exif(std::string_view bytes, bool big_endian) : bytes_(bytes), big_endian_(big_endian) {}
  std::optional<uint32_t> Number(uint64_t at, uint64_t size) const;

  std::string_view bytes_;
  bool big_endian_;
};

// Exif's "UserComment" as this program writes it, UTF-8; empty if there is none.
std::string_view ExifComment(std::string_view exif);
// A structure with this comment (UTF-8) and the name of the program, without "Exif\0\0" before it.
std::string ExifWith(const std::string& comment, const std::string& software);

}  // namespace qwen_image
