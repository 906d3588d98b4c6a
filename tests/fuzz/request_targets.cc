// Bodies of requests to the server.
#include <cstdlib>
#include <string>

#include "files/base64.h"
#include "inputs.h"
#include "server/multipart.h"
#include "targets.h"

namespace qwen_image {

void FuzzMultipart(std::string_view bytes) {
  const auto [type, body] = SplitAtNul(bytes);
  const server::MultipartLimits limits;
  const auto parts = server::ParseMultipart(type, body, limits);
  if (parts.size() > limits.parts || !server::IsMultipart(type)) std::abort();
  const char* last = body.data();
  for (const server::FormPart& part : parts) {
    // Inside the body, one behind the other.
    if (part.contents.data() < last ||
        part.contents.data() + part.contents.size() > body.data() + body.size())
      std::abort();
    last = part.contents.data() + part.contents.size();
    if (const auto decoded = DecodeBase64(part.contents)) {
      if (EncodeBase64(*decoded) != part.contents) std::abort();
    }
    if (DecodeBase64(EncodeBase64(part.contents)) != part.contents) std::abort();
  }
}

}  // namespace qwen_image
