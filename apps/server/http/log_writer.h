// Writes lines of the log in a thread of its own: a reader that stalls, like a terminal that was stopped,
// holds up nothing else.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace qwen_image::http {

class LogWriter {
 public:
  explicit LogWriter(int descriptor, size_t max_bytes = 1 << 20);
  // Gives what waits a moment to be written. The thread may outlive this object, where a write does not
  // return.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // From any thread; never waits. When the reader is too slow lines are dropped, and a line says how many.
  void Write(std::string line);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace qwen_image::http
