// Who draws the jobs of a queue: this process (DrawHere), or workers elsewhere that it hands them to.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "server/jobs/queue.h"

namespace qwen_image::jobs {

class Drawer {
 public:
  virtual ~Drawer() = default;

  // Sees to the jobs that wait until the queue stops (Queue::Impl::mode); on a thread that is the queue's.
  // What it does with a job it does with the queue's functions, so that those who listen hear of it.
  virtual void Run(Queue::Impl& queue) = 0;

  // Jobs are in other hands as soon as they wait, and go on when this process has ended. Such a drawer sees
  // to jobs that are cancelled, also while they wait, and to those that an earlier process left.
  virtual bool elsewhere() const { return false; }
  virtual std::optional<WorkersSeen> workers() const { return std::nullopt; }
};

// One after the other, by the queue's pipeline.
std::shared_ptr<Drawer> DrawHere();

}  // namespace qwen_image::jobs
