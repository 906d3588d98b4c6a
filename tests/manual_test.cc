// The manual page and the completions of a program whose texts are full of what roff and shells have a
// meaning for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "cli_harness.h"
#include "completions.h"
#include "files/testing.h"
#include "man_page.h"
#include "option_form.h"

namespace qwen_image::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

bool IsInstalled(const std::string& program) {
  return RunProgram({"-c", "command -v " + program}, {.folder = "/", .program = "/bin/sh"}).exit_code == 0;
}

class Manual : public testing::Test {
 protected:
  RunResult Shell(const std::string& shell, const std::string& script) const {
    return RunProgram({"-c", "exec " + shell + " -c '" + script + "'"},
                      {.folder = folder_.path(), .program = "/bin/sh"});
  }

  const TempFolder folder_;
  std::string text_;
  std::vector<std::filesystem::path> pictures_;
  bool flag_ = false;
  const Program program_{
      .name = "draw-it",
      .summary = "Draws 'it' with \\backslashes",
      .footer = ".footer begins with a dot\n'and this with a quote",
      .options = {{.names = "--before", .target = &text_, .help = "Not [the] command's"},
                  {.names = "--watch{all}", .target = &text_, .help = "Watch: \"all\" of it"}},
      .commands = {
          {.name = "make",
           .summary = "It's made: $HOME `id`",
           .options = {{.names = "what,-w,--what", .target = &text_, .help = "What. A second sentence"},
                       {.names = "-k,--kind",
                        .target = &text_,
                        .help = "The kind (default: round)",
                        .group = "Shapes",
                        .one_of = {"round", "rough", "square"}},
                       {.names = "-i,--input", .target = &pictures_, .help = "[a] picture's file; or two"}},
           .footer = "  draw-it make \"a \\ b\""},
          {.name = "show",
           .summary = "Shows",
           .options = {{.names = "path", .target = &pictures_, .help = "Of what"},
                       {.names = "--all", .target = &flag_, .help = "-- all"}}},
          {.name = "print",
           .summary = "Prints",
           .options = {{.names = "format", .target = &text_, .help = "How", .one_of = {"flat", "bent"}}}}}};
};

TEST_F(Manual, FormsOfOptions) {
  const std::vector<OptionForm> make = FormsOf(program_.commands[0]);
  ASSERT_EQ(make.size(), 4u);
  EXPECT_THAT(make[0].flags, ElementsAre("-h", "--help"));
  EXPECT_THAT(make[1].flags, ElementsAre("-w", "--what"));
  EXPECT_EQ(make[1].word, "what");
  EXPECT_EQ(make[1].ShortHelp(), "What");
  EXPECT_EQ(make[2].ShortHelp(), "The kind");
  EXPECT_TRUE(make[3].is_file && make[3].is_repeated);
  const std::vector<OptionForm> before = FormsOf(program_);
  EXPECT_THAT(before[1].flags, ElementsAre("--version"));
  EXPECT_THAT(before[3].flags, ElementsAre("--watch"));
  EXPECT_EQ(before[3].value, OptionForm::Value::kAfterEquals);
  EXPECT_EQ(FormsOf(program_.commands[1])[2].value, OptionForm::Value::kNone);
}

TEST_F(Manual, PageIsCleanRoff) {
  folder_.Write("page.1", ManPage(program_, "1.2"));
  int tried = 0;
  for (const char* check :
       {"groff -man -Kutf8 -Tutf8 -ww page.1 >/dev/null", "mandoc -T lint -W warning page.1"}) {
    const std::string name(check, std::string_view(check).find(' '));
    if (!IsInstalled(name)) continue;
    ++tried;
    const RunResult result = Shell("sh", check);
    // There is no date: the page of a version is always the same.
    std::string told;
    for (size_t begin = 0; begin < result.out.size();) {
      const size_t end = std::min(result.out.find('\n', begin), result.out.size());
      const std::string line = result.out.substr(begin, end - begin);
      if (line.find("missing date") == line.npos) told += line + "\n";
      begin = end + 1;
    }
    EXPECT_EQ(told + result.err, "") << check;
  }
  if (tried == 0) GTEST_SKIP() << "needs groff or mandoc";
}

TEST_F(Manual, PageShowsTextsAsTheyAre) {
  if (!IsInstalled("mandoc")) GTEST_SKIP() << "needs mandoc";
  folder_.Write("page.1", ManPage(program_, "1.2"));
  const std::string page = Shell("sh", "mandoc -T utf8 -O width=200 page.1 | sed \"s/.\\x08//g\"").out;
  for (const char* text : {"Draws 'it' with \\backslashes", ".footer begins with a dot",
                           "'and this with a quote", "draw-it make \"a \\ b\"", "what, -w, --what TEXT",
                           "-k, --kind round|rough|square", "Shapes:", "--watch[=TEXT]", "draw-it 1.2"})
    EXPECT_THAT(page, HasSubstr(text));
}

TEST_F(Manual, BashSuggests) {
  folder_.Write("it.bash", BashCompletions(program_));
  folder_.Write("a picture.png", "");
  const auto suggest = [&](const std::string& words) {
    const RunResult result = Shell(
        "bash", "source it.bash; COMP_WORDS=(draw-it " + words +
                    "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _draw_it; printf \"%s,\" \"${COMPREPLY[@]}\"");
    EXPECT_EQ(result.err, "");
    return result.out;
  };
  EXPECT_EQ(suggest("m"), "make,");
  EXPECT_EQ(suggest("--w"), "--watch,");
  EXPECT_EQ(suggest("make --k"), "--kind,");
  EXPECT_EQ(suggest("make --kind ro"), "round,rough,");
  EXPECT_EQ(suggest("make --kind = s"), "square,");
  EXPECT_EQ(suggest("make --kind ="), "round,rough,square,");
  EXPECT_EQ(suggest("make -i a"), "a picture.png,");
  EXPECT_EQ(suggest("make --what a"), ",");
  EXPECT_EQ(suggest("show a"), "a picture.png,");
  EXPECT_EQ(suggest("show --a"), "--all,");
  EXPECT_EQ(suggest("print f"), "flat,");
  // The value of an option is not the command.
  EXPECT_EQ(suggest("--before show make --k"), "--kind,");
  EXPECT_EQ(suggest("--before = show make --k"), "--kind,");
}

TEST_F(Manual, FishSuggests) {
  if (!IsInstalled("fish")) GTEST_SKIP() << "needs fish";
  folder_.Write("it.fish", FishCompletions(program_));
  setenv("HOME", folder_.path().c_str(), 1);
  const auto suggest = [&](const std::string& typed) {
    const RunResult result =
        Shell("fish --no-config", "source it.fish; complete -C \"draw-it " + typed + "\"");
    EXPECT_EQ(result.err, "");
    return result.out;
  };
  EXPECT_EQ(suggest("m"), "make\tIt's made: $HOME `id`\n");
  EXPECT_EQ(suggest("make --k"), "--kind\tThe kind\n");
  EXPECT_THAT(suggest("make --kind ro"),
              testing::AllOf(HasSubstr("round"), HasSubstr("rough"), Not(HasSubstr("square"))));
  EXPECT_THAT(suggest("make --input it.f"), HasSubstr("it.fish"));
  EXPECT_EQ(suggest("make it.f"), "");
  EXPECT_THAT(suggest("show it.f"), HasSubstr("it.fish"));
  EXPECT_THAT(suggest("print f"), testing::AllOf(HasSubstr("flat"), Not(HasSubstr("bent"))));
}

// In a terminal of its own, as zsh completes nowhere else. A word that it does not complete is waited for in
// vain, until the harness ends the program.
TEST_F(Manual, ZshCompletes) {
  if (!IsInstalled("zsh")) GTEST_SKIP() << "needs zsh";
  folder_.Write("functions/_draw-it", ZshCompletions(program_));
  folder_.Write("a picture.png", "");
  folder_.Write("ask.zsh", R"(zmodload zsh/zpty
zpty it "TERM=dumb zsh -f -i"
zpty -w it "fpath=($PWD/functions \$fpath); autoload -Uz compinit; compinit -u -d $PWD/dump; print -r ready''now"
zpty -r it seen '*readynow*'
for typed completed in "m" "make" "make --k" "--kind" "make --kind sq" "square" "make -i a" "a\\ picture.png" \
  "show a" "a\\ picture.png" "show --a" "--all" "--be" "--before"; do
  zpty -w -n it "draw-it $typed"$'\t'
  zpty -r it seen "*${(b)completed}*" && print -r -- "$completed"
  zpty -w -n it $'\C-u'
done
zpty -d it
)");
  const RunResult result = Shell("zsh -f", "zsh -n functions/_draw-it && source ./ask.zsh");
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out, "make\n--kind\nsquare\na\\ picture.png\na\\ picture.png\n--all\n--before\n");
}

}  // namespace
}  // namespace qwen_image::cli
