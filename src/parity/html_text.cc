#include "parity/html_text.h"

#include <fmt/format.h>

#include <cmath>

#include "files/text.h"

namespace qwen_image {
namespace {

std::string Base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) text += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

}  // namespace

std::string HtmlText(std::string_view text, size_t max_bytes) {
  std::string html;
  for (const char c : Printable(text, max_bytes)) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

std::string HtmlNumber(double value, int digits) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "∞" : "−∞";
  return fmt::format("{:.{}g}", value, digits);
}

std::string HtmlImage(const RgbImage& image, std::string_view alt, std::string_view css_class) {
  return fmt::format(
      "<img class=\"{}\" width=\"{}\" height=\"{}\" alt=\"{}\" src=\"data:image/png;base64,{}\">", css_class,
      image.width, image.height, alt, Base64(EncodePng(image)));
}

}  // namespace qwen_image
