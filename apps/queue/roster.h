// Which workers were heard from lately.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "queue/jetstream.h"
#include "server/jobs/queue.h"

namespace qwen_image::queue {

class Roster {
 public:
  // Of those that take jobs of this model and, unless it is empty, this build. Asks who is there.
  Roster(JetStream& jetstream, const std::string& queue_name, std::string build);

  jobs::WorkersSeen Seen() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Sighting {
    Clock::time_point when;
    bool draws = false;
  };
  void Hear(const NatsMessage& message);

  const std::string queue_name_, build_;
  mutable std::mutex mutex_;
  std::map<std::string, Sighting> seen_;
  std::unique_ptr<NatsSubscription> presence_, answers_;  // the last members: they call Hear
};

}  // namespace qwen_image::queue
