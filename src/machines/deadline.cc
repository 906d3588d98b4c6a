#include "machines/deadline.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "machines/session.h"

namespace qwen_image::machines {

Deadline::Deadline(std::chrono::seconds most, std::string problem) {
  thread_ = std::thread([this, most, problem = std::move(problem)] {
    std::unique_lock lock(mutex_);
    if (wake_.wait_for(lock, most, [&] { return done_; })) return;
    const std::string text = fmt::format("qwen-image: {} within {} seconds\n", problem, most.count());
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    std::_Exit(kOtherMachineFailed);
  });
}

Deadline::~Deadline() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

}  // namespace qwen_image::machines
