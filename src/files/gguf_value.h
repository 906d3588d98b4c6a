// The values in a GGUF file's metadata, read from untrusted bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/fail.h"

namespace qwen_image {

// A place in the file that only moves forward, and never beyond the end. Throws Error kBadInput.
class GgufCursor {
 public:
  GgufCursor(const std::string& path, std::span<const std::byte> bytes, size_t position = 0)
      : path_(path), bytes_(bytes), position_(position) {}

  // What is read from now on, for messages: "metadata entry 3 of 20".
  void Enter(std::string place) { place_ = std::move(place); }
  size_t position() const { return position_; }
  uint64_t left() const { return bytes_.size() - position_; }

  template <typename T>
  T Read() {
    T value;
    std::memcpy(&value, Take(sizeof(T)), sizeof(T));
    return value;
  }
  std::string_view ReadString();  // a length, then so many bytes
  void Skip(uint64_t count) { Take(count); }

  template <typename... Args>
  [[noreturn]] void Refuse(fmt::format_string<Args...> format, Args&&... args) const {
    Fail(ErrorKind::kBadInput, "{}: {}", path_, fmt::format(format, std::forward<Args>(args)...));
  }
  // The same, with the place in front.
  template <typename... Args>
  [[noreturn]] void RefuseHere(fmt::format_string<Args...> format, Args&&... args) const {
    Refuse("{}: {}", place_, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  const std::byte* Take(uint64_t count);

  std::string path_;
  std::span<const std::byte> bytes_;
  size_t position_;
  std::string place_ = "the header";
};

// The file's numbers.
enum class GgufType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

std::string_view NameOf(GgufType type);  // "uint8", "string", …
bool IsInteger(GgufType type);

// Where an array is in the file. Its bounds were checked.
struct GgufArray {
  GgufType type = GgufType::kU8;  // of its elements
  uint64_t count = 0;
  size_t begin = 0;  // of its first element
};

GgufType ReadType(GgufCursor& cursor);
int64_t ReadInteger(GgufType type, GgufCursor& cursor);     // of a type for which IsInteger
std::string ReadAsText(GgufType type, GgufCursor& cursor);  // anything but an array; a string must be UTF-8
GgufArray SkipArray(GgufCursor& cursor);

}  // namespace qwen_image
