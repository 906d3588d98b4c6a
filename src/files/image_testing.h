// The goldens of pictures: tools/reference/image_goldens.py.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "files/npz.h"

namespace qwen_image {

const std::filesystem::path kImageGoldens =
    std::filesystem::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/images";

struct ExpectedPixels {
  Shape shape;  // [height, width, 3], of masks [height, width]
  std::vector<uint8_t> pixels;
};

inline ExpectedPixels ExpectedOf(const std::string& name) {
  static const NpzFile file(kImageGoldens / "expected.npz");
  for (size_t i = 0; i < file.members().size(); ++i) {
    if (file.members()[i].name != name) continue;
    const NpyHeader& header = file.members()[i].header;
    ExpectedPixels expected{header.shape, std::vector<uint8_t>(static_cast<size_t>(header.count))};
    file.Read(i, 0, std::as_writable_bytes(std::span(expected.pixels)));
    return expected;
  }
  ADD_FAILURE() << "the goldens know nothing of " << name;
  return {{0, 0, 0}, {}};
}

}  // namespace qwen_image
