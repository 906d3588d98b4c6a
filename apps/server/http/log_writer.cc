#include "server/http/log_writer.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "server/http/log.h"

namespace qwen_image::http {
namespace {

constexpr std::chrono::milliseconds kLastMoment(500);

void WriteAll(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody reads it any more, or the disk is full
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

struct LogWriter::State {
  State(int descriptor, size_t max_bytes) : descriptor(descriptor), max_bytes(max_bytes) {}

  void Run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return !lines.empty() || stopping; });
      if (lines.empty()) break;
      std::string text = std::move(lines.front());
      lines.pop_front();
      bytes -= text.size();
      const size_t lost = std::exchange(dropped, 0);
      lock.unlock();
      if (lost > 0) text += LogLine("log", {{"dropped_lines", lost}}) + '\n';
      WriteAll(descriptor, text);
      lock.lock();
    }
    ended = true;
    changed.notify_all();
  }

  const int descriptor;
  const size_t max_bytes;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::string> lines;  // with their ends
  size_t bytes = 0, dropped = 0;
  bool stopping = false, ended = false;
};

LogWriter::LogWriter(int descriptor, size_t max_bytes)
    : state_(std::make_shared<State>(descriptor, max_bytes)) {
  std::thread([state = state_] { state->Run(); }).detach();
}

LogWriter::~LogWriter() {
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, kLastMoment, [&] { return state_->ended; });
}

void LogWriter::Write(std::string line) {
  line += '\n';
  const std::lock_guard lock(state_->mutex);
  if (state_->bytes + line.size() > state_->max_bytes) {
    ++state_->dropped;
    return;
  }
  state_->bytes += line.size();
  state_->lines.push_back(std::move(line));
  state_->changed.notify_all();
}

}  // namespace qwen_image::http
