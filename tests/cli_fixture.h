// What the tests of `generate` as a user types it share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "cli_harness.h"
#include "files/json.h"
#include "files/png.h"
#include "files/testing.h"

namespace qwen_image {

using Arguments = std::vector<std::string>;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized =
    true;  // sanitizers reserve terabytes of addresses: no limit on them is possible
#else
inline constexpr bool kSanitized = false;
#endif

inline const Arguments kQuick = {"--size", "64x48", "--steps", "2"};

inline Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline std::vector<std::string> Lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

class Cli : public testing::Test {
 protected:
  RunResult Run(const Arguments& arguments, RunOptions options = {}) const {
    options.folder = folder_.path();
    return RunProgram(arguments, options);
  }

  // Draws one picture and takes it out of the folder.
  Image Draw(const Arguments& arguments) const {
    const RunResult result = Run(Arguments{"generate"} + arguments + Arguments{"-q", "-o", "drawn.png"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    Image image;
    if (result.exit_code == 0) image = ReadPng(Path("drawn.png"));
    std::filesystem::remove(Path("drawn.png"));
    return image;
  }

  // Draws one picture and returns what --json says about it.
  Json Describe(const Arguments& arguments) const {
    const RunResult result =
        Run(Arguments{"generate"} + arguments + Arguments{"-q", "--json", "-o", "drawn.png"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out, nullptr, false);
  }

  // A refusal: this exit code, a message of so many lines, and no trace of a picture.
  void ExpectRefused(const Arguments& arguments, int exit_code, const std::string& message,
                     const RunOptions& options = {}, size_t max_lines = 1) const {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const std::set<std::string> before = Files();
    const RunResult result = Run(arguments, options);
    EXPECT_EQ(result.exit_code, exit_code);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, testing::AllOf(testing::StartsWith("qwen-image: "), testing::HasSubstr(message),
                                           testing::EndsWith("\n")));
    EXPECT_LE(Lines(result.err).size(), max_lines) << result.err;
    EXPECT_EQ(Files(), before);
  }
  void ExpectModelRefused(const ModelCopy& model, const std::string& message, size_t max_lines = 1) const {
    ExpectRefused({"generate", "x", "-m", model.path().string()}, kBadInput, message, {}, max_lines);
  }

  std::set<std::string> Files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      names.insert(entry.path().filename().string());
    return names;
  }
  std::filesystem::path Path(const std::string& name) const { return folder_.path() / name; }

  const TempFolder folder_;
};

}  // namespace qwen_image
