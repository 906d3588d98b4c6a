#include "files/digest.h"

#include <openssl/evp.h>

#include "core/fail.h"

namespace qwen_image {

struct Digest::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

namespace {

void Check(bool fine) {
  if (!fine) Fail(ErrorKind::kInternal, "a checksum could not be computed");
}

}  // namespace

Digest::Kind Digest::KindOf(std::string_view hash) {
  return hash.size() == kSha256Digits ? Kind::kSha256 : Kind::kGitBlob;
}

Digest::Digest(Kind kind, uint64_t size) : kind_(kind), size_(size), state_(std::make_unique<State>()) {
  Check(state_->context);
  Restart();
}

Digest::~Digest() = default;

void Digest::Restart() {
  const EVP_MD* algorithm = kind_ == Kind::kSha256 ? EVP_sha256() : EVP_sha1();
  Check(EVP_DigestInit_ex(state_->context, algorithm, nullptr) == 1);
  if (kind_ == Kind::kGitBlob) Add(fmt::format("blob {}", size_) + '\0');
}

void Digest::Add(std::string_view bytes) {
  Check(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

std::string Digest::Finish() {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int count = 0;
  Check(EVP_DigestFinal_ex(state_->context, bytes, &count) == 1);
  std::string hex;
  for (unsigned int i = 0; i < count; ++i) hex += fmt::format("{:02x}", bytes[i]);
  return hex;
}

std::string Sha256(std::string_view bytes) {
  Digest digest(Digest::Kind::kSha256, bytes.size());
  digest.Add(bytes);
  return digest.Finish();
}

}  // namespace qwen_image
