// Ends the program if something is not done in time. For the beginning, before machines hear of each other: a
// library of message passing waits for all of them without end.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace qwen_image::machines {

class Deadline {
 public:
  Deadline(std::chrono::seconds most, std::string problem);
  ~Deadline();  // it is done
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace qwen_image::machines
