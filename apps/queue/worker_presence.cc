// What a worker says of itself while it draws and waits, and what it is told.
#include <algorithm>
#include <utility>

#include "core/fail.h"
#include "queue/worker.h"

namespace qwen_image::queue {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kMostBeat = 1s;
constexpr auto kPresenceEvery = 4s;
constexpr auto kWatchedFor = 6s;  // after somebody said that previews are seen
// Kernels say how far they are within seconds. Who says nothing for so long hangs, and lets others have the
// job.
constexpr auto kHangs = 15min;

}  // namespace

void Worker::Control(const std::string& id, const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (!drawing_ || drawing_->id != id) return;
  if (what == kWatch) drawing_->watched_until = Clock::now() + kWatchedFor;
  if (what == kCancel) {
    drawing_->cancelled_by_user = true;
    drawing_->cancel.Cancel();
  }
}

std::string Worker::PresenceNow() const {
  const std::lock_guard lock(mutex_);
  return PresenceText({.worker = settings_.name,
                       .model = settings_.queue_name,
                       .build = build_,
                       .version = Version(),
                       .job = drawing_ ? drawing_->id : ""});
}

void Worker::TellPresence() {
  (void)board_.jetstream().connection().Publish(
      {.subject = SubjectOf(kPresence, settings_.name), .data = PresenceNow()});
}

// Tells others that this worker lives and what it does, and the server that its job is not to go to another.
void Worker::Beat() {
  const auto beat = std::min<std::chrono::milliseconds>(settings_.dead_after / 4, kMostBeat);
  Clock::time_point told{}, acknowledged = Clock::now();
  std::unique_lock lock(mutex_);
  while (!ended_) {
    const Clock::time_point now = Clock::now();
    if (drawing_ && stop_.cancelled()) drawing_->cancel.Cancel();
    if (drawing_ && now - drawing_->last_progress.load() > kHangs) {
      settings_.say(fmt::format("{} hangs: nothing has moved for {} minutes; another worker may have it",
                                drawing_->id, std::chrono::minutes(kHangs).count()));
      drawing_->last_progress = Clock::time_point::max();
    }
    const bool hangs = drawing_ && drawing_->last_progress.load() == Clock::time_point::max();
    if (drawing_ && !hangs && now - acknowledged >= settings_.dead_after / 3) {
      board_.jetstream().StillAtWork(drawing_->delivery);
      acknowledged = now;
    }
    if (std::exchange(presence_is_new_, false) || now - told >= kPresenceEvery) {
      lock.unlock();
      TellPresence();
      lock.lock();
      told = now;
    }
    changed_.wait_for(lock, beat, [this] { return ended_ || presence_is_new_; });
  }
}

}  // namespace qwen_image::queue
