// What the documentation tells a user to type is typed here: every command of the program in README.md,
// docs/, AGENTS.md and skills/.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "cli_harness.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kProgram = "build/release/qwen-image", kMlxProgram = "build/mlx/qwen-image";

std::vector<std::string> FencedLinesOf(const fs::path& document) {
  std::ifstream file(document);
  EXPECT_TRUE(file) << document;
  std::vector<std::string> lines;
  bool fenced = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("```")) {
      fenced = !fenced;
    } else if (fenced) {
      lines.push_back(line);
    }
  }
  return lines;
}

// The lines that call the program, or move what it wrote.
std::vector<std::string> CommandsIn(const fs::path& document, std::string_view program) {
  std::vector<std::string> commands = FencedLinesOf(document);
  std::erase_if(commands, [&](const std::string& line) {
    return !line.starts_with(program) && !line.starts_with("mv ");
  });
  return commands;
}

// Needs what a test machine does not have: real weights, or references that ./run parity makes (it runs
// those).
bool NeedsMore(const std::string& command) {
  return command.find("~/models") != command.npos || command.find("build/parity") != command.npos ||
         command.find("--device gpu") != command.npos ||
         command.find("--machines") != command.npos ||        // see ManyMachines
         command.find(" --nats ") != command.npos ||          // see tests/nats
         command.find(" runs/") != command.npos ||            // see tools/reference/record_check.py
         command.find("qwen-image pull ") != command.npos ||  // see HubCli
         command.find("qwen-image run ") != command.npos ||   // the same
         command.find("qwen-image serve") != command.npos;    // see ServerDocs
}

// "…     # exit 1" says that a command is meant to fail.
int ExpectedExit(const std::string& command) {
  constexpr std::string_view kMark = "# exit ";
  const size_t mark = command.rfind(kMark);
  return mark == command.npos ? 0 : std::stoi(command.substr(mark + kMark.size()));
}

void SwapHalves(std::string& bytes) {
  std::rotate(bytes.begin(), bytes.begin() + bytes.size() / 2, bytes.end());
}

// What the documents take for granted: a prompt file, a picture, the project's models, a reference run, and
// the broken model of docs/debugging.md.
void Prepare(const fs::path& folder) {
  const fs::path source = QWEN_IMAGE_SOURCE_DIR;
  std::ofstream(folder / "prompts.txt") << "a red circle\ntwo blue stars on a white background\n";
  ASSERT_EQ(
      RunProgram({"generate", "a red circle", "--steps", "2", "-o", "circle.png", "-q"}, {.folder = folder})
          .exit_code,
      0);
  fs::create_directory_symlink(source / "models", folder / "models");
  fs::create_directory_symlink(source / "tests", folder / "tests");
  fs::create_directories(folder / "debug_artifacts/circle");
  fs::create_directory_symlink(source / "tests/goldens/tiny_all", folder / "debug_artifacts/circle/ref");
  const ModelCopy broken(folder / "broken-model");
  broken.EditTensors("transformer/diffusion_pytorch_model.safetensors",
                     [](ModelCopy::StoredTensors& tensors) {
                       SwapHalves(tensors.at("norm_out.linear.weight").bytes);
                       SwapHalves(tensors.at("norm_out.linear.bias").bytes);
                     });
  ASSERT_EQ(RunProgram({"--debug=circle", "--checkpoints", "all", "generate", "--model", "broken-model", "-o",
                        "circle-broken.png", "-q"},
                       {.folder = folder})
                .exit_code,
            1);
}

// Returns how many were run.
int RunCommands(const std::string& document, std::string_view program, const fs::path& folder) {
  int run = 0;
  for (const std::string& command : CommandsIn(fs::path(QWEN_IMAGE_SOURCE_DIR) / document, program)) {
    if (NeedsMore(command)) continue;
    const bool ours = command.starts_with(program);
    const std::string typed = ours ? "'" QWEN_IMAGE_PROGRAM "'" + command.substr(program.size()) : command;
    const RunResult result = RunProgram({"-c", typed}, {.folder = folder, .program = "/bin/sh"});
    EXPECT_EQ(result.exit_code, ExpectedExit(command)) << document << ": " << command << "\n" << result.err;
    ++run;
  }
  return run;
}

// All of them, as a list would be forgotten; but for MLX's, whose commands another program runs (MlxDocs).
std::vector<std::string> Documents() {
  std::vector<std::string> documents = {"README.md", "AGENTS.md"};
  for (const auto& entry : fs::directory_iterator(fs::path(QWEN_IMAGE_SOURCE_DIR) / "skills"))
    documents.push_back("skills/" + entry.path().filename().string() + "/SKILL.md");
  for (const auto& entry : fs::directory_iterator(fs::path(QWEN_IMAGE_SOURCE_DIR) / "docs")) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() == ".md" && name != "mlx.md") documents.push_back("docs/" + name);
  }
  std::sort(documents.begin(), documents.end());
  return documents;
}

TEST(Docs, EveryCommandWorks) {
  const TempFolder folder;
  Prepare(folder.path());

  int run = 0;
  for (const std::string& document : Documents()) run += RunCommands(document, kProgram, folder.path());
  EXPECT_GE(run, 50);
}

// What agents read holds no command that nobody types. Those in Python are ./run parity's, as in
// docs/debugging.md.
TEST(Docs, AgentsReadOnlyCommandsThatAreTyped) {
  int commands = 0;
  for (const std::string& document : Documents()) {
    if (document.starts_with("docs/") || document == "README.md") continue;
    for (const std::string& line : FencedLinesOf(fs::path(QWEN_IMAGE_SOURCE_DIR) / document)) {
      const bool typed = line.starts_with(kProgram) && !NeedsMore(line);
      EXPECT_TRUE(typed || line.starts_with(".venv/bin/python ")) << document << ": " << line;
      ++commands;
    }
  }
  EXPECT_GE(commands, 15);
}

// Skills begin with their name, which is their folder's, and what they are for.
TEST(Docs, SkillsSayWhatTheyAreFor) {
  for (const auto& entry : fs::directory_iterator(fs::path(QWEN_IMAGE_SOURCE_DIR) / "skills")) {
    std::ifstream file(entry.path() / "SKILL.md");
    std::string rule, name, description, end;
    std::getline(file, rule), std::getline(file, name), std::getline(file, description),
        std::getline(file, end);
    EXPECT_EQ(rule, "---");
    EXPECT_EQ(name, "name: " + entry.path().filename().string());
    EXPECT_TRUE(description.starts_with("description: ")) << description;
    EXPECT_EQ(end, "---");
  }
}

TEST(MlxDocs, EveryCommandWorks) {
  const TempFolder folder;
  if (RunProgram({"devices"}, {.folder = folder.path()}).out.find("by MLX") == std::string::npos)
    GTEST_SKIP() << "needs a build with MLX: ./run test --mlx";
  EXPECT_GE(RunCommands("docs/mlx.md", kMlxProgram, folder.path()), 10);
}

}  // namespace
}  // namespace qwen_image
