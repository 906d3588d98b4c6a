// Arrays and pictures.
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "files/npy.h"
#include "files/npz.h"
#include "files/picture_file.h"
#include "files/png.h"
#include "files/text.h"
#include "inputs.h"
#include "qwen_image/image_file.h"
#include "targets.h"

namespace qwen_image {
namespace {

uint32_t BigEndian(std::string_view bytes) {
  uint32_t value = 0;
  for (const char byte : bytes.substr(0, 4)) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

// Every change of a chunk breaks its checksum: without this, libpng would see nothing but broken ones.
std::string WithRightChecksums(std::string_view bytes) {
  std::string png(bytes);
  for (size_t at = 8; at + 12 <= png.size();) {
    const size_t length = BigEndian(bytes.substr(at));
    if (length > png.size() - at - 12) break;
    const auto* chunk = reinterpret_cast<const Bytef*>(png.data() + at + 4);
    const uint64_t checksum = crc32(0, chunk, static_cast<uInt>(length + 4));
    for (size_t i = 0; i < 4; ++i) png[at + 8 + length + i] = static_cast<char>(checksum >> (24 - 8 * i));
    at += 12 + length;
  }
  return png;
}

}  // namespace

void FuzzImage(std::string_view bytes) {
  constexpr ImageLimits kLimits{.max_side = 512, .max_pixels = 1 << 15};  // larger ones only take longer
  const std::string picture = bytes.starts_with("\x89PNG") ? WithRightChecksums(bytes) : std::string(bytes);
  const ImageFile file = DecodeImage(picture, "input", kLimits);
  if (file.image.pixels.size() != static_cast<size_t>(file.image.width * file.image.height * 3)) std::abort();
  const ImageFile kept = DecodeImage(picture, "input", kLimits, Transparency::kKept);
  const int64_t values = kept.image.width * kept.image.height * kept.image.channels;
  if (kept.image.pixels.size() != static_cast<size_t>(values)) std::abort();
  if (kept.transparent && !kept.image.has_alpha()) std::abort();
  DecodePictureText(picture, "input");
  const MaskFile mask = DecodeMask(picture, "input", kLimits);
  if (mask.image.width != file.image.width || mask.image.height != file.image.height) std::abort();
  if (mask.image.pixels.size() * 3 != file.image.pixels.size()) std::abort();
  for (const std::string& note : file.notes) {
    if (note.empty() || note != Printable(note)) std::abort();
  }
}

void FuzzNpy(std::string_view bytes) {
  ParseNpy(std::as_bytes(std::span(bytes)), "input.npy");
  const MemoryFile file(bytes);
  ReadNpyFloat(file.path());
}

void FuzzNpz(std::string_view bytes) {
  const MemoryFile input(bytes);
  const NpzFile file(input.path());
  std::array<std::byte, 1000> piece;
  for (size_t i = 0; i < file.members().size(); ++i) {
    const NpyHeader& header = file.members()[i].header;
    const auto total = static_cast<uint64_t>(header.count * header.type->bytes);
    for (uint64_t at = 0; at < total; at += piece.size()) {
      file.Read(i, at, std::span(piece).first(std::min<uint64_t>(piece.size(), total - at)));
    }
  }
}

void FuzzPng(std::string_view bytes) {
  for (const std::string& picture : {WithRightChecksums(bytes), std::string(bytes)}) {
    const MemoryFile file(picture);
    const Image image = ReadPng(file.path());
    if (image.pixels.size() != static_cast<size_t>(image.width * image.height * 3)) std::abort();
    ReadPngText(file.path());
  }
}

}  // namespace qwen_image
