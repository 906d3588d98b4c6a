// What docs/server.md tells a user to type is typed here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "cli_harness.h"
#include "files/png.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;

TEST(ServerDocs, EveryCommandWorks) {
  const TempFolder folder;
  fs::create_directory_symlink(fs::path(QWEN_IMAGE_SOURCE_DIR) / "models", folder.path() / "models");
  Image mask{128, 128, std::vector<uint8_t>(128 * 128 * 3, 0)};
  std::fill(mask.pixels.begin(), mask.pixels.begin() + 64 * 128 * 3, 255);
  std::ofstream(folder.path() / "mask.png", std::ios::binary) << EncodePng(mask);

  const RunResult result =
      RunProgram({QWEN_IMAGE_SOURCE_DIR "/tests/server_docs.sh", QWEN_IMAGE_PROGRAM, QWEN_IMAGE_SOURCE_DIR},
                 {.folder = folder.path(), .program = "/bin/bash"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, testing::ContainsRegex("[23][0-9] commands with curl, [3-9] servers"));
  for (const char* drawn : {"circle.png", "green.png"})
    EXPECT_EQ(ReadPng(folder.path() / drawn).width, 128) << drawn;
}

}  // namespace
}  // namespace qwen_image
