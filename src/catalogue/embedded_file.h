// catalogue.json, as cmake/embed.cmake writes it into the program.
#pragma once

#include <cstddef>
#include <string_view>

namespace qwen_image::catalogue {

struct EmbeddedFile {
  std::string_view path;
  std::string_view content;
};

extern const EmbeddedFile kEmbeddedFiles[];  // one
extern const size_t kEmbeddedFileCount;

}  // namespace qwen_image::catalogue
