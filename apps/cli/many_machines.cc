#include "many_machines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "core/fail.h"
#include "files/text.h"
#include "machines/session.h"

namespace qwen_image::cli {
namespace {

// Tells the program that it was started here, and not by a user's own launcher.
constexpr const char* kStartedHere = "QWEN_IMAGE_MACHINES";

std::string WrongName(const std::string& name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  if (name.empty() || name.front() == '-' || name.find_first_not_of(kAllowed) != name.npos)
    return Quoted(name) + " is not the name of a machine";
  return {};
}

// Open MPI's list of hosts: each as often as it was named.
std::string HostsOf(const std::vector<std::string>& machines) {
  std::vector<std::pair<std::string, int>> hosts;
  for (const std::string& name : machines) {
    const auto known =
        std::find_if(hosts.begin(), hosts.end(), [&](const auto& h) { return h.first == name; });
    if (known == hosts.end()) {
      hosts.emplace_back(name, 1);
    } else {
      ++known->second;
    }
  }
  std::vector<std::string> texts;
  for (const auto& [name, times] : hosts) texts.push_back(fmt::format("{}:{}", name, times));
  return fmt::format("{}", fmt::join(texts, ","));
}

std::vector<std::string> LauncherCommand(const std::vector<std::string>& machines,
                                         const std::vector<std::string>& arguments) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  // Without --bind-to a process would be kept to one processor.
  std::vector<std::string> command = {
      "mpirun",     "--host",        HostsOf(machines), "-np",  std::to_string(machines.size()),
      "--bind-to",  "none",          "--map-by",        "node", "-x",
      kStartedHere, program.string()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

[[noreturn]] void Become(const std::vector<std::string>& command) {
  setenv(kStartedHere, "1", 1);
  if (geteuid() == 0) {  // else mpirun only explains that users of one machine should not be root
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  }
  // The launcher gives the first machine's program a terminal, whatever its own output is.
  if (isatty(STDOUT_FILENO) == 0) setenv("NO_COLOR", "1", 1);
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // machines do not outlive the program that was asked to draw
#endif
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGPIPE, SIG_DFL);
  execvp(arguments[0], arguments.data());
  constexpr int kNotFound = 127;
  _exit(kNotFound);
}

struct Ended {
  int status;  // as waitpid tells it
  bool cancelled;
};

// Tells the launcher when this program is to stop.
Ended WaitFor(pid_t launcher, const CancelFlag& cancel) {
  Ended ended{.status = 0, .cancelled = false};
  while (true) {
    const pid_t pid = waitpid(launcher, &ended.status, WNOHANG);
    if (pid == launcher) return ended;
    if (pid < 0) Fail(ErrorKind::kInternal, "cannot wait for mpirun: {}", std::strerror(errno));
    if (cancel.cancelled() && !ended.cancelled) {
      kill(launcher, SIGTERM);
      ended.cancelled = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// The first machine's own code, unless the launcher ended it.
int ExitCodeOf(int status, bool cancelled, bool may_be_unusable) {
  if (cancelled) return 130;
  if (!WIFEXITED(status)) return machines::kOtherMachineFailed;
  const int code = WEXITSTATUS(status);
  // mpirun itself ends with 1 where it cannot start a machine.
  for (const int own : {0, 2, 3, 4, 5, 70, 130})
    if (code == own) return code;
  if (code == 1 && may_be_unusable) return code;
  return machines::kOtherMachineFailed;
}

}  // namespace

Option MachinesOption(std::vector<std::string>& machines, const char* group, const char* help) {
  return {.names = "--machines",
          .target = &machines,
          .help = help,
          .group = group,
          .check = WrongName,
          .comma_separated = true};
}

Option SplitOption(std::optional<Split>& split, const char* group) {
  return NamedOption("--split", split,
                     "What each of several machines computes: sequence (the default): a prompt, tokens, "
                     "heads; layers: some of "
                     "the blocks, where no machine has memory for all",
                     group);
}

std::optional<int> RunOnMachines(const std::vector<std::string>& machines, const Session& session) {
  if (machines.empty()) return std::nullopt;
  if (session.machines) {
    if (!std::getenv(kStartedHere))
      Fail(ErrorKind::kUsage, "--machines starts a launcher by itself; leave out either that or mpirun");
    return std::nullopt;
  }
  if (machines.size() < 2) Fail(ErrorKind::kUsage, "--machines: name at least two, this one among them");
  Machines::CheckPlugin();
  const std::vector<std::string> command = LauncherCommand(machines, session.arguments);
  const pid_t launcher = fork();
  if (launcher < 0) Fail(ErrorKind::kInternal, "cannot start mpirun: {}", std::strerror(errno));
  if (launcher == 0) Become(command);
  const auto [status, cancelled] = WaitFor(launcher, session.cancel);
  constexpr int kNotFound = 127;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotFound)
    Fail(ErrorKind::kUsage,
         "--machines needs Open MPI's mpirun, which is not installed (Debian: openmpi-bin)");
  return ExitCodeOf(status, cancelled, session.examines);
}

}  // namespace qwen_image::cli
