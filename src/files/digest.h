// Hashes. Hugging Face names the contents of files by two: sha256 for large ones (Git LFS), and git's own for
// the others: sha1 of "blob <size>", a NUL and the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace qwen_image {

class Digest {
 public:
  enum class Kind { kSha256, kGitBlob };
  static Kind KindOf(std::string_view hash);  // by its length

  Digest(Kind kind, uint64_t size);  // of all bytes that will be added
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void Restart();
  void Add(std::string_view bytes);
  void Add(std::span<const std::byte> bytes) {
    Add(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  std::string Finish();  // lowercase hexadecimal; Restart() before the next use

 private:
  struct State;
  Kind kind_;
  uint64_t size_;
  std::unique_ptr<State> state_;
};

std::string Sha256(std::string_view bytes);  // lowercase hexadecimal

constexpr size_t kSha256Digits = 64, kGitHashDigits = 40;

}  // namespace qwen_image
