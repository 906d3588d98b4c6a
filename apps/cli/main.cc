// The program: a table of commands, and errors as exit codes.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>

#include "command_line.h"
#include "core/fail.h"
#include "debug_options.h"
#include "files/text.h"
#include "kernels/interface.h"
#include "print.h"
#include "qwen_image/cancel.h"
#include "qwen_image/machines.h"
#include "qwen_image/qwen_image.h"
#include "qwen_image/truncation_guard.h"

namespace qwen_image::cli {
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
    case ErrorKind::kMachine:
      return 6;
    case ErrorKind::kInternal:
      break;
  }
  return 70;  // sysexits' EX_SOFTWARE
}

// A file that is opened later must not become stdout or stderr because these are closed: it would get the
// messages.
void OpenStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", O_RDWR);  // gets the lowest free number, which is fd
  }
}

Program TheProgram(DebugOptions& debug) {
  return {
      .name = "qwen-image",
      .summary = "Draws and edits pictures with the Qwen-Image models, on plain CPUs.",
      .version = fmt::format("qwen-image {} ({})", Version(), InstructionSet()),
      .footer =
          "Exit codes: 0 success, 1 a comparison failed or a model is not usable, 2 wrong usage, 3 bad input "
          "file,\n"
          "4 does not fit in memory, 5 cannot write the output, 6 another machine failed, 70 a bug in the "
          "program, 130 interrupted.\n\n"
          "Examples:\n  qwen-image generate \"a red circle on a blue background\" -o circle.png\n"
          "  qwen-image edit \"make the circle green\" --input-image circle.png -o green.png\n"
          "  qwen-image run qwen-image-2.1 \"a lighthouse in fog\"\n"
          "  qwen-image serve\n"
          "More:      qwen-image generate --help",
      .options = DebugOptionList(debug),
      .commands = {GenerateCommand(), EditCommand(),    RunCommand(),   ListCommand(),        PullCommand(),
                   RmCommand(),       ServeCommand(),   WorkCommand(),  SubmitCommand(),      DoctorCommand(),
                   InspectCommand(),  ConvertCommand(), ProveCommand(), CompareCommand(),     BisectCommand(),
                   SelftestCommand(), DevicesCommand(), BenchCommand(), CompletionsCommand(), ManCommand()},
  };
}

int Main(int argc, char** argv, const std::shared_ptr<Machines>& machines) {
  DebugOptions debug;
  const Program program = TheProgram(debug);
  const std::vector<std::string> arguments(argv + std::min(1, argc), argv + argc);
  const auto parsed = ParseCommandLine(program, arguments);
  if (const int* code = std::get_if<int>(&parsed)) return *code;
  const Command* command = std::get<const Command*>(parsed);
  if (debug.list_checkpoints && !(command && command->draws)) command = &program.commands.front();
  if (!command) Fail(ErrorKind::kUsage, "a command is missing, for example generate (see qwen-image --help)");
  if (!debug.run_id.empty() && !command->draws) Fail(ErrorKind::kUsage, "--debug is for commands that draw");
  if (machines && !command->many_machines)
    Fail(ErrorKind::kUsage, "{} runs on one machine; start it without a launcher of several processes",
         command->name);
  const int code =
      command->run({debug, interrupted, program, arguments, machines, command->name == "doctor"});
  if (stdout_was_lost) Fail(ErrorKind::kCannotWrite, "cannot write to the standard output: no space left");
  return code;
}

// The first machine alone decides when a run ends.
int Follow(Machines& machines) {
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  return machines.Follow();
}

// Errors as messages and exit codes.
int Guarded(const std::function<int()>& run) {
  try {
    return run();
  } catch (const Error& error) {
    Print(stderr, "qwen-image: {}\n", PrintableLines(error.message()));
    return ExitCode(error.kind());
  } catch (const std::bad_alloc&) {
    Print(stderr, "qwen-image: out of memory\n");
    return ExitCode(ErrorKind::kOutOfMemory);
  } catch (const std::exception& error) {
    Print(stderr, "qwen-image: internal error: {}\n", error.what());
    return ExitCode(ErrorKind::kInternal);
  }
}

}  // namespace
}  // namespace qwen_image::cli

int main(int argc, char** argv) {
  using qwen_image::ErrorKind;
  qwen_image::cli::OpenStandardStreams();
  std::signal(SIGINT, qwen_image::cli::OnInterrupt);
  std::signal(SIGTERM, qwen_image::cli::OnInterrupt);
  std::signal(SIGPIPE, SIG_IGN);                   // a closed stdout must not lose the picture
  std::signal(SIGXFSZ, SIG_IGN);                   // a file that may not grow is an error as others are
  qwen_image::InstallTruncationGuard();            // and so is a model that shrinks while it is in use
  std::shared_ptr<qwen_image::Machines> machines;  // dismissed after the last message
  const int code = qwen_image::cli::Guarded([&] {
    machines = qwen_image::Machines::Join();
    if (!machines) return qwen_image::cli::Main(argc, argv, machines);
    if (machines->rank() > 0) return qwen_image::cli::Follow(*machines);
    setenv("NO_COLOR", "1", /*overwrite=*/0);  // the launcher's terminal is not the user's
    return qwen_image::cli::Main(argc, argv, machines);
  });
  if (machines) machines->set_exit_code(code);
  return code;
}
