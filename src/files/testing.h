// What the tests of files/ and weights/ share.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>

#include "qwen_image/error.h"

namespace qwen_image {

// For what should happen soon: a test that has waited so long has failed.
inline constexpr std::chrono::seconds kLongForAnyMachine(100);

// A new empty folder that is removed at the end of the test.
class TempFolder {
 public:
  TempFolder() {
    std::string name = ::testing::TempDir() + "/qwen_image_XXXXXX";
    if (!mkdtemp(name.data())) std::abort();
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Writes a file, and the folders above it.
  std::filesystem::path Write(std::string_view name, std::string_view bytes) const {
    const std::filesystem::path path = path_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  size_t FileCount() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::filesystem::path path_;
};

inline std::string ReadBytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The message of the Error of this kind that `call` throws.
template <typename Call>
std::string MessageOf(ErrorKind kind, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.message();
    return error.message();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

// `value` as `count` bytes, lowest first.
inline std::string LittleEndian(uint64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

inline std::string SafetensorsBytes(std::string_view header, std::string_view data) {
  return LittleEndian(header.size(), 8) + std::string(header) + std::string(data);
}

}  // namespace qwen_image
