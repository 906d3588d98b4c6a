// Runs the real qwen-image program the way a shell would: arguments, environment, pipes, signals, limits.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace qwen_image {

// Exit codes.
inline constexpr int kFailed = 1, kUsage = 2, kBadInput = 3, kOutOfMemory = 4, kCannotWrite = 5,
                     kInterrupted = 130;

inline const std::filesystem::path kSource = QWEN_IMAGE_SOURCE_DIR;
inline const std::filesystem::path kFormats = kSource / "tests/goldens/formats";
inline const std::filesystem::path kTinyFolder = kSource / "models/tiny";
inline const std::string kTiny = kTinyFolder.string();  // as it is typed
// The weights of the embedded model's transformer, in its folder.
inline const std::string kTransformer = "transformer/diffusion_pytorch_model.safetensors";

enum class Stream {
  kCaptured,    // into RunResult
  kClosed,      // no such file descriptor in the program
  kBrokenPipe,  // a pipe nobody reads
  kFull,        // /dev/full
  kTerminal,    // into RunResult, through a pseudo-terminal
};

struct RunOptions {
  std::filesystem::path folder = {};                                   // to run in
  std::filesystem::path program = {};                                  // empty: the one under test
  std::map<std::string, std::optional<std::string>> environment = {};  // changes; nullopt unsets
  std::optional<std::string> typed = {};  // on a terminal; else the input is that of the tests
  Stream standard_output = Stream::kCaptured;
  Stream standard_error = Stream::kCaptured;
  std::optional<uint64_t> address_space = {};  // limits in bytes, as ulimit -v and -f
  std::optional<uint64_t> file_size = {};
};

struct RunResult {
  int exit_code = -1;  // 128 + signal if one ended the program
  std::string out, err;
};

// A program under way. Whatever it does, it does not outlive this object, nor two minutes.
class RunningProgram {
 public:
  RunningProgram(const std::vector<std::string>& arguments, const RunOptions& options);
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  // Waits until stderr contains `text`; false if the program ended before.
  bool WaitForError(const std::string& text);
  // The same for stdout; what came there so far, empty if the program ended before.
  std::string WaitForOutput(const std::string& text);
  const std::string& err() const { return result_.err; }  // that was waited for
  void Signal(int signal);
  RunResult Finish();

 private:
  // Takes in what the program printed since; false once it has ended.
  bool Receive();
  void Reap();

  pid_t pid_ = -1;
  int keyboard_ = -1;                     // of a terminal as standard input
  int out_ = -1, err_ = -1, alive_ = -1;  // `alive_`: a pipe whose other end closes when the program ends
  std::chrono::steady_clock::time_point deadline_;
  RunResult result_;
};

RunResult RunProgram(const std::vector<std::string>& arguments, const RunOptions& options);

// A model of the project, with links to its files in a folder of its own where they can be replaced one by
// one.
class ModelCopy {
 public:
  explicit ModelCopy(const std::filesystem::path& folder, const std::filesystem::path& model = "models/tiny");
  const std::filesystem::path& path() const { return path_; }

  void Write(const std::string& file, const std::string& bytes) const;
  // Replaces `from`, which must be there, in a text file.
  void Edit(const std::string& file, const std::string& from, const std::string& to) const;
  void Truncate(const std::string& file, int64_t bytes) const;  // also to more: a hole, which takes no space

  struct StoredTensor {
    std::string dtype;
    Shape shape;
    std::string bytes;
  };
  using StoredTensors = std::map<std::string, StoredTensor>;
  void EditTensors(const std::string& file, const std::function<void(StoredTensors&)>& edit) const;

 private:
  std::filesystem::path path_;
};

}  // namespace qwen_image
