// Arrays and pictures.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>

#include "files/npy.h"
#include "files/npz.h"
#include "files/png.h"
#include "inputs.h"
#include "targets.h"

namespace qwen_image {

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
    const uint64_t total = static_cast<uint64_t>(header.count) * header.type.size;
    for (uint64_t at = 0; at < total; at += piece.size()) {
      file.Read(i, at, std::span(piece).first(std::min<uint64_t>(piece.size(), total - at)));
    }
  }
}

void FuzzPng(std::string_view bytes) {
  const MemoryFile file(bytes);
  const RgbImage image = ReadPng(file.path());
  if (image.pixels.size() != static_cast<size_t>(image.width * image.height * 3)) std::abort();
  ReadPngText(file.path());
}

}  // namespace qwen_image
