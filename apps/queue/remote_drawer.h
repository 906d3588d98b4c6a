// A server's jobs in the hands of workers elsewhere: it sends them to the queue of a NATS server, and follows
// what becomes of them.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "queue/board.h"
#include "queue/results.h"
#include "server/jobs/drawer.h"

namespace qwen_image::queue {

struct RemoteSettings {
  std::string queue_name;   // what jobs call the model
  bool same_build = false;  // only workers of this build may draw
  std::function<void(const std::string& line)> say;
};

// All must outlive it.
std::shared_ptr<jobs::Drawer> DrawElsewhere(Board& board, Results& results, RemoteSettings settings);

}  // namespace qwen_image::queue
