// qwen-image man and qwen-image completions: every option that --help shows is in each of them.
#include <fmt/format.h>

#include <regex>

#include "cli_fixture.h"

namespace qwen_image {
namespace {

using ::testing::HasSubstr;

class ManualCli : public Cli {
 protected:
  std::string Printed(const Arguments& arguments) const {
    const RunResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    return result.out;
  }

  // The names at the beginning of lines of a --help.
  static std::set<std::string> FlagsOf(const std::string& help) {
    const std::regex line("\n  (-[a-z],)?(--[a-z0-9-]+)");
    std::set<std::string> flags;
    for (std::sregex_iterator found(help.begin(), help.end(), line), end; found != end; ++found)
      flags.insert((*found)[2]);
    return flags;
  }

  std::vector<std::string> Commands() const {
    const std::string help = Printed({"--help"});
    const std::regex line("\n  ([a-z]+) +[A-Z]");
    const std::string list = help.substr(help.find("Subcommands:"));
    std::vector<std::string> commands;
    for (std::sregex_iterator found(list.begin(), list.end(), line), end; found != end; ++found)
      commands.push_back((*found)[1]);
    return commands;
  }
};

TEST_F(ManualCli, EveryOptionIsInManualAndCompletions) {
  const std::vector<std::string> commands = Commands();
  EXPECT_GE(commands.size(), 14u);
  const std::string man = Printed({"man"}), bash = Printed({"completions", "bash"}),
                    zsh = Printed({"completions", "zsh"}), fish = Printed({"completions", "fish"});
  size_t flags = 0;
  for (const std::string& command : commands) {
    const size_t section = man.find(".SS \"qwen\\-image " + command + "\"");
    ASSERT_NE(section, man.npos) << command;
    const std::string in_man = man.substr(section, man.find("\n.S", section) - section);
    const size_t words = bash.find("    " + command + ":*) ");
    ASSERT_NE(words, bash.npos) << command;
    const std::string in_bash = bash.substr(words, bash.find('\n', words + 1) - words);
    const size_t branch = zsh.find("        " + command + ") _arguments");
    ASSERT_NE(branch, zsh.npos) << command;
    const std::string in_zsh = zsh.substr(branch, zsh.find(";;\n", branch) - branch);
    for (const std::string& flag : FlagsOf(Printed({command, "--help"}))) {
      SCOPED_TRACE(fmt::format("{} {}", command, flag));
      EXPECT_THAT(in_man, HasSubstr(std::regex_replace(flag, std::regex("-"), "\\-") + "\\fR"));
      EXPECT_THAT(in_bash + " ", testing::ContainsRegex(flag + "[ ']"));
      EXPECT_THAT(in_zsh, testing::ContainsRegex(flag + "[=[]"));
      EXPECT_THAT(
          fish, testing::ContainsRegex("seen_subcommand_from " + command + "'.* -l " + flag.substr(2) + " "));
      ++flags;
    }
  }
  EXPECT_GE(flags, 100u);
}

TEST_F(ManualCli, RefusesOtherShells) {
  ExpectRefused({"completions", "csh"}, kUsage, "csh");
  ExpectRefused({"completions"}, kUsage, "shell");
}

// The service of the Debian package. ./run package check starts it under systemd.
TEST_F(ManualCli, ServiceUnitIsUnderstoodAndConfined) {
  const auto shell = [this](const std::string& script) {
    return RunProgram({"-c", script}, {.folder = folder_.path(), .program = "/bin/sh"});
  };
  if (shell("command -v systemd-analyze").exit_code != 0) GTEST_SKIP() << "needs systemd-analyze";
  const std::string unit =
      ReadBytes(std::filesystem::path(QWEN_IMAGE_SOURCE_DIR) / "tools/package/deb/qwen-image.service");
  // systemd looks whether the program is there.
  folder_.Write("qwen-image.service",
                std::regex_replace(unit, std::regex("/usr/bin/qwen-image"), QWEN_IMAGE_PROGRAM));
  const RunResult verified = shell("systemd-analyze verify --man=no ./qwen-image.service");
  EXPECT_EQ(verified.exit_code, 0);
  EXPECT_EQ(verified.err, "");
  const RunResult confined =
      shell("systemd-analyze security --no-pager --offline=true --threshold=20 ./qwen-image.service");
  EXPECT_EQ(confined.exit_code, 0) << confined.out;
}

}  // namespace
}  // namespace qwen_image
