#include "parity/report/html_text.h"

#include <fmt/format.h>

#include <cmath>

#include "files/base64.h"
#include "files/text.h"
#include "parity/report/html_style.h"

namespace qwen_image::report {

std::string HtmlPage(std::string_view title, const std::string& body, std::string_view script) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src "
      "'unsafe-inline'; script-src 'unsafe-inline'\">"
      "<title>{}</title><style>{}</style></head><body>\n{}{}</body></html>\n",
      title, kHtmlStyle, body, script.empty() ? "" : fmt::format("<script>{}</script>", script));
}

std::string HtmlSection(std::string_view title, const std::string& content) {
  return content.empty() ? "" : fmt::format("<section><h2>{}</h2>{}</section>\n", title, content);
}

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

std::string HtmlImage(const Image& image, std::string_view alt, std::string_view css_class) {
  return fmt::format(
      "<img class=\"{}\" width=\"{}\" height=\"{}\" alt=\"{}\" src=\"data:image/png;base64,{}\">", css_class,
      image.width, image.height, alt, EncodeBase64(EncodePng(image)));
}

}  // namespace qwen_image::report
