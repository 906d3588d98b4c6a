// The files of the page, as cmake/embed.cmake writes them into the program.
#pragma once

#include <cstddef>
#include <string_view>

namespace qwen_image::page {

struct EmbeddedFile {
  std::string_view path;  // "/app.js"
  std::string_view content;
};

extern const EmbeddedFile kEmbeddedFiles[];
extern const size_t kEmbeddedFileCount;

}  // namespace qwen_image::page
