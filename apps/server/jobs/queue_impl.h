// The inside of Queue: what it knows of each job, and those who listen (telling.cc). Who draws works with it
// (drawer.h).
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "qwen_image/cancel.h"
#include "server/jobs/drawer.h"
#include "server/jobs/progress.h"
#include "server/jobs/queue.h"
#include "server/jobs/store.h"

namespace qwen_image::jobs {

class Queue::Subscription {
 public:
  explicit Subscription(Observer observer) : observer_(std::move(observer)) {}

  // While this is held, no other thread can notify, so the state at the beginning is sent first.
  std::unique_lock<std::recursive_mutex> Hold() { return std::unique_lock(mutex_); }

  void Tell(const Job& job, const Event& event) noexcept {
    const auto lock = Hold();
    if (!observer_) return;
    try {
      observer_(job, event);
    } catch (...) {  // a listener's trouble is not the picture's
    }
    if (event.kind == Event::Kind::kEnd) observer_ = nullptr;
  }

  void Close() {
    const auto lock = Hold();
    observer_ = nullptr;
  }

 private:
  std::recursive_mutex mutex_;  // an observer may let go of its own handle
  Observer observer_;
};

using Listeners = std::vector<std::shared_ptr<Queue::Subscription>>;

// Guarded by the mutex of Queue, all but `cancel`.
struct JobEntry {
  Job job;
  Request request;
  CancelFlag cancel;
  bool interrupted = false;  // by the end of the server, not by a user
  int64_t bytes = 0;         // of the request's pictures
  bool handed_over = false;  // to those who draw it elsewhere
  std::string last_preview;
  bool preview_wanted = false;  // by somebody who asks for it now and then
  std::chrono::steady_clock::time_point last_told;
  std::vector<std::weak_ptr<Queue::Subscription>> observers;

  Listeners Listening() {
    Listeners listeners;
    std::erase_if(observers, [&](const auto& observer) {
      auto listener = observer.lock();
      if (listener) listeners.push_back(std::move(listener));
      return observer.expired();
    });
    return listeners;
  }
};

inline int64_t BytesOf(const GenerateRequest& request) {
  size_t bytes = 0;
  for (const Image& image : request.input_images) bytes += image.pixels.size();
  if (request.init_image) bytes += request.init_image->pixels.size();
  if (request.mask) bytes += request.mask->pixels.size();
  if (request.latents) bytes += request.latents->values.size() * sizeof(float);
  return static_cast<int64_t>(bytes);
}

using Entry = std::shared_ptr<JobEntry>;

inline int64_t UnixMilliseconds() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// How a job ended, and what to tell the user.
struct Ending {
  State state = State::kDone;
  ErrorKind kind = ErrorKind::kInternal;
  std::string error;
};

inline constexpr const char* kStoppedWaiting =
    "the server was stopped before this job began; send it again to have it drawn";
inline constexpr const char* kStoppedDrawing =
    "the server was stopped while this job was drawn; send it again to have it drawn";

struct Queue::Impl {
  enum class Mode { kOpen, kFinishQueue, kFinishRunning, kStop };

  Impl(const Pipeline& pipeline, std::filesystem::path folder, Limits limits, Options options,
       std::shared_ptr<Drawer> who_draws)
      : pipeline(pipeline),
        limits(limits),
        options(std::move(options)),
        store(std::move(folder)),
        drawer(who_draws ? std::move(who_draws) : DrawHere()) {
    Restore();
    drawing = std::thread([this] { Draw(); });
  }

  void Restore();
  void Draw();

  // For who draws.
  Entry TakeFirst();  // waits for a job, which runs then; null: no more are to be drawn
  void TellBegun(const Entry& entry);
  void SetProgress(const Entry& entry, const JobProgress& progress);
  void SetPreview(const Entry& entry, const std::string& png);
  bool Watched(const Entry& entry);
  void Finish(const Entry& entry, Ending ending);
  void FinishWithoutMemory(const Entry& entry) noexcept;
  void InterruptWaiting();
  void ForgetOldest();
  void Raise(Mode to);

  // With the mutex held.
  void Begin(const Entry& entry, int64_t when);  // it runs
  Job Snapshot(const JobEntry& entry) const;
  Entry FindEntry(const std::string& id) const;
  int64_t RetryAfter() const;

  // Without it.
  void Tell(const Entry& entry, const Event& event, bool may_wait);
  void TellWaiting();

  const Pipeline& pipeline;
  const Limits limits;
  const Options options;
  const Store store;
  const std::shared_ptr<Drawer> drawer;
  std::vector<std::string> problems;

  mutable std::mutex mutex;
  std::condition_variable changed;
  Mode mode = Mode::kOpen;
  bool finished = false;       // the drawing thread has ended
  std::vector<Entry> entries;  // oldest first
  std::deque<Entry> waiting;
  int64_t kept_empty = limits.queue + 1;  // ended jobs without a picture: what a stop can leave behind
  int64_t reserved = 0;                   // places of jobs that are being written down
  int64_t last_created = 0;
  std::vector<Entry> running;
  QueueStats stats;
  double seconds_per_job = 0;  // a moving mean
  std::thread drawing;
};

}  // namespace qwen_image::jobs
