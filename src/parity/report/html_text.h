// What HTML reports are made of: the page around them, text, numbers and pictures.
#pragma once

#include <string>
#include <string_view>

#include "files/png.h"

namespace qwen_image::report {

// A page that loads nothing from elsewhere. `title` is trusted text.
std::string HtmlPage(std::string_view title, const std::string& body, std::string_view script = {});
// A heading and what is below it; empty without that.
std::string HtmlSection(std::string_view title, const std::string& content);
// Untrusted text, fit for an element's content and for a quoted attribute.
std::string HtmlText(std::string_view text, size_t max_bytes = 300);
std::string HtmlNumber(double value, int digits = 3);  // "1.25e-07", "NaN", "∞"
// <img> with the picture inside it; `alt` is trusted text.
std::string HtmlImage(const Image& image, std::string_view alt, std::string_view css_class);

}  // namespace qwen_image::report
