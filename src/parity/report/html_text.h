// Text, numbers and pictures inside an HTML page. Internal to this folder.
#pragma once

#include <string>
#include <string_view>

#include "files/png.h"

namespace qwen_image::report {

// Untrusted text, fit for an element's content and for a quoted attribute.
std::string HtmlText(std::string_view text, size_t max_bytes = 300);
std::string HtmlNumber(double value, int digits = 3);  // "1.25e-07", "NaN", "∞"
// <img> with the picture inside it; `alt` is trusted text.
std::string HtmlImage(const Image& image, std::string_view alt, std::string_view css_class);

}  // namespace qwen_image::report
