// What those who listen are told of a job, and how it ends.
#include "core/fail.h"
#include "server/jobs/queue_impl.h"

namespace qwen_image::jobs {
namespace {

using Clock = std::chrono::steady_clock;

// Between two reports of the same step. A page needs no more, and a small model does thousands a second.
constexpr auto kTellEvery = std::chrono::milliseconds(100);

}  // namespace

void Queue::Impl::Tell(const Entry& entry, const Event& event, bool may_wait) {
  std::unique_lock lock(mutex);
  const Clock::time_point now = Clock::now();
  if (may_wait && now - entry->last_told < kTellEvery) return;
  entry->last_told = now;
  const Listeners listeners = entry->Listening();
  if (listeners.empty()) return;
  const Job job = Snapshot(*entry);
  lock.unlock();
  for (const auto& listener : listeners) listener->Tell(job, event);
}

void Queue::Impl::TellWaiting() {
  std::unique_lock lock(mutex);
  const std::deque<Entry> still_waiting = waiting;
  lock.unlock();
  for (const Entry& entry : still_waiting) Tell(entry, {}, false);
}

Entry Queue::Impl::TakeFirst() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return mode != Mode::kOpen || !waiting.empty(); });
  if (waiting.empty() || mode > Mode::kFinishQueue) return nullptr;
  const Entry entry = waiting.front();
  Begin(entry, UnixMilliseconds());
  return entry;
}

void Queue::Impl::Begin(const Entry& entry, int64_t when) {
  std::erase(waiting, entry);
  running.push_back(entry);
  entry->job.state = State::kRunning;
  entry->job.started = when;
}

void Queue::Impl::TellBegun(const Entry& entry) {
  std::unique_lock lock(mutex);
  const Job job = entry->job;
  lock.unlock();
  store.Write(job);
  if (options.on_state) options.on_state(job);
  Tell(entry, {}, false);
}

void Queue::Impl::SetProgress(const Entry& entry, const JobProgress& progress) {
  std::unique_lock lock(mutex);
  const JobProgress before = std::exchange(entry->job.progress, progress);
  const bool same = before.stage == progress.stage && before.step == progress.step;
  lock.unlock();
  Tell(entry, {}, same);
}

void Queue::Impl::SetPreview(const Entry& entry, const std::string& png) {
  std::unique_lock lock(mutex);
  entry->last_preview = png;
  lock.unlock();
  Tell(entry, {Event::Kind::kPreview, png}, false);
}

bool Queue::Impl::Watched(const Entry& entry) {
  const std::lock_guard lock(mutex);
  return entry->preview_wanted || !entry->Listening().empty();
}

void Queue::Impl::InterruptWaiting() {
  for (;;) {
    Entry entry;
    {
      const std::lock_guard lock(mutex);
      if (waiting.empty()) return;
      entry = waiting.front();
      waiting.pop_front();
    }
    Finish(entry, {State::kInterrupted, ErrorKind::kInterrupted, kStoppedWaiting});
  }
}

// What the job held is let go first; then there may be enough memory to tell its end.
void Queue::Impl::FinishWithoutMemory(const Entry& entry) noexcept {
  {
    const std::lock_guard lock(mutex);
    entry->request = {};
    entry->last_preview.clear();
    entry->last_preview.shrink_to_fit();
    entry->job.state = State::kFailed;
    entry->job.error_kind = ErrorKind::kOutOfMemory;
    std::erase(running, entry);
  }
  try {
    Finish(entry, {State::kFailed, ErrorKind::kOutOfMemory, "there was not enough memory for this picture"});
  } catch (const std::exception&) {  // it has failed, and nobody is told
  }
}

// First written down, then told: who hears of the end finds it after a restart, too.
void Queue::Impl::Finish(const Entry& entry, Ending ending) {
  std::unique_lock lock(mutex);
  Job job = entry->job;
  lock.unlock();
  job.state = ending.state;
  job.error_kind = ending.kind;
  job.error = std::move(ending.error);
  job.finished = UnixMilliseconds();
  job.progress.position = 0;
  if (job.state == State::kDone) {
    job.progress.fraction = 1;
    job.progress.seconds_left = 0;
  }
  try {
    store.Write(job);
  } catch (const Error& error) {
    job.notes.push_back(fmt::format("this job will be lost when the server stops: {}", error.message()));
  }
  lock.lock();
  entry->job = job;
  entry->request = {};
  entry->last_preview.clear();
  std::erase(running, entry);
  ++stats.ended[job.state];
  if (job.state == State::kDone) {
    const double seconds = static_cast<double>(job.finished - job.started) / 1000;
    seconds_per_job = seconds_per_job > 0 ? 0.7 * seconds_per_job + 0.3 * seconds : seconds;
  }
  const Listeners listeners = entry->Listening();
  entry->observers.clear();
  lock.unlock();
  if (options.on_state) options.on_state(job);
  for (const auto& listener : listeners) listener->Tell(job, {Event::Kind::kEnd, ""});
  ForgetOldest();
}

}  // namespace qwen_image::jobs
