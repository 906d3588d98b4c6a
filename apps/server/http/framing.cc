#include "server/http/framing.h"

namespace qwen_image::http {
namespace {

namespace beast = boost::beast;

constexpr std::string_view kEnd = "\r\n\r\n";

}  // namespace

bool HeaderGoesOn(std::string_view bytes) {
  if (bytes.empty()) return true;
  const char first = bytes.front();  // of the method
  const bool is_letter = (first >= 'A' && first <= 'Z') || (first >= 'a' && first <= 'z');
  return is_letter && bytes.find(kEnd) == bytes.npos;
}

bool HasFoldedLine(std::string_view bytes) {
  const std::string_view header = bytes.substr(0, bytes.find(kEnd));
  return header.find("\r\n ") != header.npos || header.find("\r\n\t") != header.npos;
}

std::optional<Refusal> CheckEncoding(const Parser& parser) {
  const auto [begin, end] = parser.get().equal_range(beast::http::field::transfer_encoding);
  if (begin == end) return std::nullopt;
  if (parser.get().version() < 11) return Refusal{400, "HTTP/1.0 has no Transfer-Encoding"};
  if (std::next(begin) == end && beast::iequals(begin->value(), "chunked")) return std::nullopt;
  return Refusal{501, "the only Transfer-Encoding that is understood is chunked"};
}

void ChunkMeter::operator()(uint64_t, beast::string_view extensions, boost::system::error_code& error) {
  bytes_ += extensions.size();
  if (bytes_ > most_) error = beast::http::error::header_limit;
}

}  // namespace qwen_image::http
