// The command line: parses, calls the library, maps errors to exit codes.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <new>

#include "bench_command.h"
#include "bisect_command.h"
#include "checkpoint_list.h"
#include "compare_command.h"
#include "convert_command.h"
#include "core/fail.h"
#include "devices_command.h"
#include "doctor_command.h"
#include "files/text.h"
#include "generate_command.h"
#include "inspect_command.h"
#include "kernels/kernels.h"
#include "options.h"
#include "print.h"
#include "pull_command.h"
#include "qwen_image/cancel.h"
#include "qwen_image/qwen_image.h"
#include "qwen_image/truncation_guard.h"
#include "selftest_command.h"
#include "serve_command.h"

namespace qwen_image {
namespace {

CancelFlag interrupted;

// The first Ctrl-C stops the run in good order; a second one ends the program at once.
extern "C" void OnInterrupt(int signal) {
  interrupted.Cancel();
  std::signal(signal, SIG_DFL);
}

int ExitCode(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
      return 2;
    case ErrorKind::kBadInput:
      return 3;
    case ErrorKind::kOutOfMemory:
      return 4;
    case ErrorKind::kCannotWrite:
      return 5;
    case ErrorKind::kInterrupted:
      return 130;
    case ErrorKind::kInternal:
      break;
  }
  return 70;  // sysexits' EX_SOFTWARE
}

std::string ParseErrorText(const CLI::App& app, const CLI::ParseError& error) {
  const auto commands = app.get_subcommands();
  if (!commands.empty()) {
    const std::vector<std::string> words = commands.front()->remaining();
    const auto said = [&](const char* word) {
      return std::find(words.begin(), words.end(), word) != words.end();
    };
    if (commands.front()->get_name() == "generate" && (said("-i") || said("--input-image")))
      return "generate begins with a text; to change a picture use: qwen-image edit TEXT --input-image "
             "PICTURE, or "
             "generate with --init-image PICTURE";
    return error.what();
  }
  for (const std::string& word : app.remaining()) {
    if (!word.starts_with('-')) return fmt::format("there is no command {}", Quoted(word));
  }
  if (!app.remaining().empty()) return fmt::format("unknown option {}", app.remaining().front());
  return error.what();
}

// A file that is opened later must not become stdout or stderr because these are closed: it would get the
// messages.
void OpenStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", O_RDWR);  // gets the lowest free number, which is fd
  }
}

int Main(int argc, char** argv) {
  CLI::App app{"Draws and edits pictures with the Qwen-Image models, on plain CPUs."};
  app.name("qwen-image");
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", fmt::format("qwen-image {} ({})", Version(), InstructionSet()));
  app.footer(
      "Exit codes: 0 success, 1 a comparison failed or a model is not usable, 2 wrong usage, 3 bad input "
      "file,\n"
      "4 does not fit in memory, 5 cannot write the output, 70 a bug in the program, 130 interrupted.\n\n"
      "Examples:\n  qwen-image generate \"a red circle on a blue background\" -o circle.png\n"
      "  qwen-image edit \"make the circle green\" --input-image circle.png -o green.png\n"
      "  qwen-image serve\n"
      "More:      qwen-image generate --help");
  DebugOptions debug;
  AddDebugOptions(app, debug);
  GenerateOptions generate;
  CLI::App* generate_command = app.add_subcommand("generate", "Draw a picture from a text");
  AddGenerateOptions(*generate_command, generate);
  GenerateOptions edit;
  CLI::App* edit_command = app.add_subcommand("edit", "Change a picture as a text says");
  AddEditOptions(*edit_command, edit);
  BisectOptions bisect;
  CLI::App* bisect_command =
      app.add_subcommand("bisect", "Find the first operation where a run leaves a reference run");
  AddBisectOptions(*bisect_command, bisect);
  CompareCommandOptions compare;
  CLI::App* compare_command =
      app.add_subcommand("compare", "Compare two runs, tensor by tensor, or two pictures");
  AddCompareOptions(*compare_command, compare);
  ConvertCommandOptions convert;
  CLI::App* convert_command = app.add_subcommand(
      "convert", "Write a model anew: other number types, quantized, from any form to one folder");
  AddConvertOptions(*convert_command, convert);
  InspectCommandOptions inspect;
  CLI::App* inspect_command =
      app.add_subcommand("inspect", "Look into weight files: keys, statistics, what is wrong; compare two");
  AddInspectOptions(*inspect_command, inspect);
  PullCommandOptions pull;
  CLI::App* pull_command = app.add_subcommand("pull", "Download a model from Hugging Face");
  AddPullOptions(*pull_command, pull);

  ServeOptions serve;
  CLI::App* serve_command = app.add_subcommand(
      "serve", "A web page and an HTTP API (OpenAI's and others'); the model is loaded once");
  AddServeOptions(*serve_command, serve);
  DoctorOptions doctor;
  CLI::App* doctor_command =
      app.add_subcommand("doctor", "What a model is, whether it is whole and fits, what would go wrong");
  AddDoctorOptions(*doctor_command, doctor);
  DevicesOptions devices;
  CLI::App* devices_command = app.add_subcommand("devices", "What --device can name on this machine");
  AddDevicesOptions(*devices_command, devices);
  SelftestOptions selftest;
  CLI::App* selftest_command =
      app.add_subcommand("selftest", "Draw on the CPU and on another device, and compare tensor by tensor");
  AddSelftestOptions(*selftest_command, selftest);
  BenchOptions bench;
  CLI::App* bench_command = app.add_subcommand("bench", "Draw pictures of several sizes and time each stage");
  AddBenchOptions(*bench_command, bench);

  try {
    app.parse(CommandLineWords(app, {argv + std::min(1, argc), argv + argc}));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const auto commands = app.get_subcommands();
    Print(stderr, "qwen-image: {} (see qwen-image {}--help)\n", Printable(ParseErrorText(app, error), 1000),
          commands.empty() ? "" : commands[0]->get_name() + " ");
    return ExitCode(ErrorKind::kUsage);
  }
  if (!debug.list_checkpoints && app.get_subcommands().empty())
    Fail(ErrorKind::kUsage, "a command is missing, for example generate (see qwen-image --help)");
  const bool edits = edit_command->parsed();
  if (!generate_command->parsed() && !edits && !debug.run_id.empty())
    Fail(ErrorKind::kUsage, "--debug is for commands that draw");
  int code = 0;
  if (debug.list_checkpoints) {
    code = ListCheckpoints(edits ? edit : generate, debug, interrupted);
  } else if (bisect_command->parsed()) {
    code = RunBisect(bisect, debug, interrupted);
  } else if (compare_command->parsed()) {
    code = RunCompare(compare, interrupted);
  } else if (convert_command->parsed()) {
    code = RunConvert(convert, interrupted);
  } else if (inspect_command->parsed()) {
    code = RunInspect(inspect, interrupted);
  } else if (doctor_command->parsed()) {
    code = RunDoctor(doctor, interrupted);
  } else if (serve_command->parsed()) {
    return RunServe(serve, interrupted);  // whoever reads its first line may go away
  } else if (devices_command->parsed()) {
    code = RunDevices(devices);
  } else if (selftest_command->parsed()) {
    code = RunSelftest(selftest, interrupted);
  } else if (bench_command->parsed()) {
    code = RunBench(bench, interrupted);
  } else if (pull_command->parsed()) {
    code = RunPull(pull, interrupted);
  } else {
    const GenerateOptions& options = edits ? edit : generate;
    code = RunGenerate(options, debug, interrupted);
    if (!options.json) return code;  // the picture is the result, not what is said about it
  }
  if (stdout_was_lost) Fail(ErrorKind::kCannotWrite, "cannot write to the standard output: no space left");
  return code;
}

}  // namespace
}  // namespace qwen_image

int main(int argc, char** argv) {
  using qwen_image::ErrorKind;
  qwen_image::OpenStandardStreams();
  std::signal(SIGINT, qwen_image::OnInterrupt);
  std::signal(SIGTERM, qwen_image::OnInterrupt);
  std::signal(SIGPIPE, SIG_IGN);         // a closed stdout must not lose the picture
  std::signal(SIGXFSZ, SIG_IGN);         // a file that may not grow is an error as others are
  qwen_image::InstallTruncationGuard();  // and so is a model that shrinks while it is in use
  try {
    return qwen_image::Main(argc, argv);
  } catch (const qwen_image::Error& error) {
    qwen_image::Print(stderr, "qwen-image: {}\n", error.message());
    return qwen_image::ExitCode(error.kind());
  } catch (const std::bad_alloc&) {
    qwen_image::Print(stderr, "qwen-image: out of memory\n");
    return qwen_image::ExitCode(ErrorKind::kOutOfMemory);
  } catch (const std::exception& error) {
    qwen_image::Print(stderr, "qwen-image: internal error: {}\n", error.what());
    return qwen_image::ExitCode(ErrorKind::kInternal);
  }
}
