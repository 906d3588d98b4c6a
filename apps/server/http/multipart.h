// Forms with files: multipart/form-data (RFC 7578).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qwen_image::http {

struct MultipartLimits {
  size_t parts = 64;
  size_t header_bytes = 4096;  // of one part
};

struct FormPart {
  std::string name;
  bool is_file = false;       // it came with a name of a file, which is of no interest
  std::string_view contents;  // of the body
};

// Whether a Content-Type says that such a form follows.
bool IsMultipart(std::string_view content_type);

// The parts point into the body. Throws Error kBadInput for a form that is not whole, or not one.
std::vector<FormPart> ParseMultipart(std::string_view content_type, std::string_view body,
                                     const MultipartLimits& limits = {});

}  // namespace qwen_image::http
