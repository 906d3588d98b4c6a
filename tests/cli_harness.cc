#include "cli_harness.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "files/json.h"
#include "files/safetensors.h"
#include "files/testing.h"

namespace qwen_image {
namespace {

namespace fs = std::filesystem;

constexpr auto kWatchdog = std::chrono::seconds(120);

[[noreturn]] void Throw(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

void Close(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

struct Pipe {
  int read = -1, write = -1;
};

// Both ends are high numbers, so that the program can be given any of 0, 1 and 2.
Pipe MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) Throw("pipe");
  Pipe high{fcntl(ends[0], F_DUPFD_CLOEXEC, 100), fcntl(ends[1], F_DUPFD_CLOEXEC, 100)};
  close(ends[0]);
  close(ends[1]);
  return high;
}

// Our end in `read` (−1 if there is nothing to read), the program's end in `write` (−1: closed).
Pipe OpenStream(Stream stream) {
  Pipe ends;
  switch (stream) {
    case Stream::kCaptured:
      return MakePipe();
    case Stream::kClosed:
      return ends;
    case Stream::kBrokenPipe:
      ends = MakePipe();
      Close(ends.read);
      return ends;
    case Stream::kFull:
      ends.write = open("/dev/full", O_WRONLY | O_CLOEXEC);
      if (ends.write < 0) Throw("/dev/full");
      return ends;
    case Stream::kTerminal: {
      winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
      if (openpty(&ends.read, &ends.write, nullptr, nullptr, &size) != 0) Throw("openpty");
      fcntl(ends.read, F_SETFD, FD_CLOEXEC);
      fcntl(ends.write, F_SETFD, FD_CLOEXEC);
      return ends;
    }
  }
  return ends;
}

std::vector<std::string> MakeEnvironment(const RunOptions& options) {
  // The tests use neither the models of the user that runs them nor a server in the internet.
  std::map<std::string, std::optional<std::string>> changes = {
      {"QWEN_IMAGE_MODEL", std::string(QWEN_IMAGE_SOURCE_DIR) + "/models/tiny"},
      {"HF_HOME", "/nonexistent"},
      {"XDG_CACHE_HOME", "/dev/null/no-cache"},  // cannot be made, not even by root
      {"HF_ENDPOINT", "http://127.0.0.1:1"},
      {"no_proxy", "127.0.0.1"}};
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN",
                           "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "QWEN_IMAGE_CATALOGUE"})
    changes[name] = std::nullopt;
  for (const auto& [name, value] : options.environment) changes[name] = value;
  std::vector<std::string> lines;
  for (char** line = environ; *line; ++line) {
    const std::string text = *line;
    if (!changes.contains(text.substr(0, text.find('=')))) lines.push_back(text);
  }
  for (const auto& [name, value] : changes) {
    if (value) lines.push_back(name + "=" + *value);
  }
  return lines;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

void SetLimit(decltype(RLIMIT_AS) what, std::optional<uint64_t> bytes) {
  if (!bytes) return;
  const rlimit limit{*bytes, *bytes};
  if (setrlimit(what, &limit) != 0) _exit(126);
}

// Between fork and exec: in the program's process.
void PutInPlace(int from, int to) {
  if (from < 0) {
    close(to);
  } else if (dup2(from, to) < 0) {
    _exit(126);
  }
}

// Appends what is there; closes `fd` at the end of the stream.
void ReadSome(int& fd, std::string* text) {
  char block[4096];
  const ssize_t size = read(fd, block, sizeof(block));
  if (size > 0 && text) text->append(block, static_cast<size_t>(size));
  if (size == 0 || (size < 0 && errno != EINTR)) Close(fd);  // a terminal ends with EIO
}

}  // namespace

RunningProgram::RunningProgram(const std::vector<std::string>& arguments, const RunOptions& options)
    : deadline_(std::chrono::steady_clock::now() + kWatchdog) {
  std::vector<std::string> command = {options.program.empty() ? QWEN_IMAGE_PROGRAM
                                                              : options.program.string()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const std::vector<std::string> environment = MakeEnvironment(options);
  const std::vector<char*> argv = Pointers(command), envp = Pointers(environment);

  Pipe out = OpenStream(options.standard_output), err = OpenStream(options.standard_error);
  Pipe alive = MakePipe(), in;
  if (options.typed) {
    in = OpenStream(Stream::kTerminal);
    if (write(in.read, options.typed->data(), options.typed->size()) < 0) Throw("typing");
  }
  pid_ = fork();
  if (pid_ < 0) Throw("fork");
  if (pid_ == 0) {
    if (chdir(options.folder.c_str()) != 0) _exit(126);
    if (options.typed) PutInPlace(in.write, STDIN_FILENO);
    PutInPlace(out.write, STDOUT_FILENO);
    PutInPlace(err.write, STDERR_FILENO);
    fcntl(alive.write, F_SETFD, 0);  // stays open until the program ends
    SetLimit(RLIMIT_FSIZE, options.file_size);
    SetLimit(RLIMIT_AS, options.address_space);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  Close(in.write);
  Close(out.write);
  Close(err.write);
  Close(alive.write);
  keyboard_ = in.read;
  out_ = out.read;
  err_ = err.read;
  alive_ = alive.read;
}

RunningProgram::~RunningProgram() {
  if (pid_ > 0) kill(pid_, SIGKILL);
  Reap();
  Close(keyboard_);
  Close(out_);
  Close(err_);
  Close(alive_);
}

bool RunningProgram::Receive() {
  if (out_ < 0 && err_ < 0 && alive_ < 0) return false;
  pollfd polled[] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}, {alive_, POLLIN, 0}};
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now());
  const int ready = poll(polled, 3, static_cast<int>(std::max<int64_t>(0, left.count())));
  if (ready < 0 && errno == EINTR) return true;
  if (ready <= 0) {
    ADD_FAILURE() << "the program was still running after two minutes; stdout:\n"
                  << result_.out << "\nstderr:\n"
                  << result_.err;
    kill(pid_, SIGKILL);
    return false;
  }
  if (polled[0].revents) ReadSome(out_, &result_.out);
  if (polled[1].revents) ReadSome(err_, &result_.err);
  if (polled[2].revents) ReadSome(alive_, nullptr);
  return true;
}

void RunningProgram::Reap() {
  if (pid_ <= 0) return;
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  result_.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  pid_ = -1;
}

bool RunningProgram::WaitForError(const std::string& text) {
  while (result_.err.find(text) == std::string::npos) {
    if (!Receive()) return false;
  }
  return true;
}

std::string RunningProgram::WaitForOutput(const std::string& text) {
  while (result_.out.find(text) == std::string::npos) {
    if (!Receive()) return "";
  }
  return result_.out;
}

void RunningProgram::Signal(int signal) { kill(pid_, signal); }

RunResult RunningProgram::Finish() {
  while (Receive()) {
  }
  Reap();
  return result_;
}

RunResult RunProgram(const std::vector<std::string>& arguments, const RunOptions& options) {
  return RunningProgram(arguments, options).Finish();
}

ModelCopy::ModelCopy(const fs::path& folder, const fs::path& model) : path_(folder) {
  const fs::path source = fs::path(QWEN_IMAGE_SOURCE_DIR) / model;
  for (const auto& entry :
       fs::recursive_directory_iterator(source, fs::directory_options::follow_directory_symlink)) {
    const fs::path target = path_ / entry.path().lexically_relative(source);
    fs::create_directories(target.parent_path());
    if (entry.is_regular_file()) fs::create_symlink(entry.path(), target);
  }
}

void ModelCopy::Write(const std::string& file, const std::string& bytes) const {
  fs::remove(path_ / file);  // the link, not what it points to
  std::ofstream(path_ / file, std::ios::binary) << bytes;
}

void ModelCopy::Edit(const std::string& file, const std::string& from, const std::string& to) const {
  std::string text = ReadBytes(path_ / file);
  const size_t at = text.find(from);
  if (at == text.npos) throw std::runtime_error(file + " does not contain " + from);
  Write(file, text.replace(at, from.size(), to));
}

void ModelCopy::Truncate(const std::string& file, int64_t bytes) const {
  Write(file, ReadBytes(path_ / file));
  fs::resize_file(path_ / file, static_cast<uintmax_t>(bytes));
}

void ModelCopy::EditTensors(const std::string& file, const std::function<void(StoredTensors&)>& edit) const {
  StoredTensors tensors;
  {
    const SafetensorsFile stored(path_ / file);
    for (const auto& [name, entry] : stored.tensors()) {
      const std::string bytes(reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size());
      tensors[name] = {std::string(NameOf(entry.dtype)), entry.shape, bytes};
    }
  }
  edit(tensors);
  Json header = Json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = data.size();
    data += tensor.bytes;
    header[name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  Write(file, SafetensorsBytes(header.dump(), data));
}

}  // namespace qwen_image
