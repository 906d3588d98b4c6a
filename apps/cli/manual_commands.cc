// qwen-image man, qwen-image completions: what the program knows about itself, for man and for shells.
#include <memory>

#include "command.h"
#include "completions.h"
#include "man_page.h"
#include "print.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::cli {
namespace {

std::string CompletionsFor(const std::string& shell, const Program& program) {
  if (shell == "bash") return BashCompletions(program);
  return shell == "zsh" ? ZshCompletions(program) : FishCompletions(program);
}

}  // namespace

Command CompletionsCommand() {
  const auto shell = std::make_shared<std::string>();
  return {.name = "completions",
          .summary = "A script by which a shell completes commands and options of this program",
          .options = {{.names = "shell",
                       .target = shell.get(),
                       .help = "The shell",
                       .one_of = {"bash", "zsh", "fish"},
                       .required = true}},
          .footer =
              "Examples:\n"
              "  source <(qwen-image completions bash)                                 in ~/.bashrc\n"
              "  source <(qwen-image completions zsh)                                  in ~/.zshrc, after "
              "compinit\n"
              "  qwen-image completions fish > ~/.config/fish/completions/qwen-image.fish",
          .run = [shell](const Session& session) {
            Print(stdout, "{}", CompletionsFor(*shell, session.program));
            return 0;
          }};
}

Command ManCommand() {
  return {.name = "man",
          .summary = "The manual page of this program, for man",
          .options = {},
          .footer =
              "Examples:\n"
              "  qwen-image man | man -l -\n"
              "  qwen-image man > ~/.local/share/man/man1/qwen-image.1",
          .run = [](const Session& session) {
            Print(stdout, "{}", ManPage(session.program, Version()));
            return 0;
          }};
}

}  // namespace qwen_image::cli
