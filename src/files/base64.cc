#include "files/base64.h"

#include <openssl/evp.h>

#include <algorithm>

namespace qwen_image {
namespace {

// OpenSSL counts in int; a whole number of groups at a time keeps far from its limit.
constexpr size_t kBlockBytes = 3 << 18, kBlockDigits = 4 << 18;

}  // namespace

std::string EncodeBase64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // OpenSSL adds a NUL
  size_t written = 0;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kBlockBytes))) {
    written += static_cast<size_t>(EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data() + written),
                                                   reinterpret_cast<const unsigned char*>(bytes.data()),
                                                   static_cast<int>(std::min(bytes.size(), kBlockBytes))));
  }
  text.resize(written);
  return text;
}

std::optional<std::string> DecodeBase64(std::string_view text) {
  const size_t digits = text.find_last_not_of('=') + 1, padding = text.size() - digits;
  // OpenSSL takes blanks at both ends, which then are missing in what it counts, and padding of any length.
  const bool strict = text.size() % 4 == 0 && padding <= 2 && text.find('=') >= digits;
  if (!strict) return std::nullopt;
  std::string bytes(text.size() / 4 * 3, '\0');
  size_t written = 0;
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(std::min(rest.size(), kBlockDigits))) {
    const size_t block = std::min(rest.size(), kBlockDigits);
    const int decoded =
        EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data() + written),
                        reinterpret_cast<const unsigned char*>(rest.data()), static_cast<int>(block));
    if (decoded != static_cast<int>(block / 4 * 3)) return std::nullopt;
    written += block / 4 * 3;
  }
  // The bits that the padding leaves over must be 0: else two texts would mean the same bytes.
  for (size_t i = 0; i < padding; ++i) {
    if (bytes.back() != '\0') return std::nullopt;
    bytes.pop_back();
  }
  return bytes;
}

}  // namespace qwen_image
