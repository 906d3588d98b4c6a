// What the documentation tells a user to type is typed here: every command of the program in README.md and
// docs/.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "cli_harness.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kProgram = "build/release/qwen-image";

// The lines of fenced blocks that call the program.
std::vector<std::string> CommandsIn(const fs::path& document) {
  std::ifstream file(document);
  EXPECT_TRUE(file) << document;
  std::vector<std::string> commands;
  bool fenced = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("```")) {
      fenced = !fenced;
    } else if (fenced && line.starts_with(kProgram)) {
      commands.push_back(line);
    }
  }
  return commands;
}

// Needs what a test machine does not have: real weights, or references that ./run parity makes (it runs
// those).
bool NeedsMore(const std::string& command) {
  return command.find("~/models") != command.npos || command.find("build/parity") != command.npos;
}

TEST(Docs, EveryCommandWorks) {
  const fs::path source = QWEN_IMAGE_SOURCE_DIR;
  const TempFolder folder;
  fs::create_directory_symlink(source / "models", folder.path() / "models");
  std::ofstream(folder.path() / "prompts.txt") << "a red circle\ntwo blue stars on a white background\n";
  ASSERT_EQ(RunProgram({"generate", "a red circle", "--steps", "2", "-o", "circle.png", "-q"},
                       {.folder = folder.path()})
                .exit_code,
            0);

  int run = 0;
  for (const char* document :
       {"README.md", "docs/debugging.md", "docs/inspect.md", "docs/performance.md", "docs/architecture.md"}) {
    for (const std::string& command : CommandsIn(source / document)) {
      if (NeedsMore(command)) continue;
      const std::string typed = "'" QWEN_IMAGE_PROGRAM "'" + command.substr(kProgram.size());
      const RunResult result = RunProgram({"-c", typed}, {.folder = folder.path(), .program = "/bin/sh"});
      EXPECT_EQ(result.exit_code, 0) << document << ": " << command << "\n" << result.err;
      ++run;
    }
  }
  EXPECT_GE(run, 5);
}

}  // namespace
}  // namespace qwen_image
