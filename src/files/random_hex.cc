#include "random_hex.h"

#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "core/fail.h"

namespace qwen_image {

std::string RandomHex(size_t digits) {
  std::vector<unsigned char> bytes(digits / 2);
  if (getentropy(bytes.data(), bytes.size()) != 0)
    Fail(ErrorKind::kInternal, "the system gives no random numbers: {}", std::strerror(errno));
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace qwen_image
