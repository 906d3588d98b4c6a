#include "server/jobs/queue.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "server/jobs/queue_impl.h"

namespace qwen_image::jobs {
void Queue::Impl::Restore() {
  Store::Contents contents = store.Load();
  problems = std::move(contents.problems);
  int64_t interrupted = 0;
  for (Job& job : contents.jobs) {
    const bool goes_on = !HasEnded(job.state) && drawer->elsewhere();
    if (goes_on) {
      job.state = State::kQueued;  // who draws will tell what became of it
    } else if (!HasEnded(job.state)) {
      ++interrupted;
      job.error = job.state == State::kQueued ? kStoppedWaiting : kStoppedDrawing;
      job.state = State::kInterrupted;
      job.error_kind = ErrorKind::kInterrupted;
      job.finished = std::max(job.created, job.started);
      try {
        store.Write(job);
      } catch (const Error& error) {
        problems.push_back(error.message());
      }
    }
    if (job.state == State::kDone) job.progress.fraction = 1;
    last_created = std::max(last_created, job.created);
    auto entry = std::make_shared<JobEntry>();
    entry->job = std::move(job);
    entry->handed_over = goes_on;
    if (goes_on) waiting.push_back(entry);
    entries.push_back(std::move(entry));
  }
  kept_empty = std::max(kept_empty, interrupted);  // the queue may have been longer before
  ForgetOldest();
}

Job Queue::Impl::Snapshot(const JobEntry& entry) const {
  Job job = entry.job;
  if (job.state == State::kQueued) {
    const auto at =
        std::find_if(waiting.begin(), waiting.end(), [&](const Entry& e) { return e.get() == &entry; });
    job.progress.position = at - waiting.begin() + 1;
  }
  return job;
}

Entry Queue::Impl::FindEntry(const std::string& id) const {
  const auto found =
      std::find_if(entries.rbegin(), entries.rend(), [&](const Entry& entry) { return entry->job.id == id; });
  return found == entries.rend() ? nullptr : *found;
}

int64_t Queue::Impl::RetryAfter() const {
  double left = running.empty() ? 0 : running.front()->job.progress.seconds_left;
  for (const Entry& entry : running) left = std::min(left, entry->job.progress.seconds_left);
  const double seconds = left > 0 ? left : seconds_per_job;
  return std::clamp<int64_t>(static_cast<int64_t>(std::ceil(seconds)), 1, 3600);
}

void Queue::Impl::Draw() {
  drawer->Run(*this);
  if (!drawer->elsewhere()) InterruptWaiting();
  const std::lock_guard lock(mutex);
  finished = true;
  changed.notify_all();
}

void Queue::Impl::ForgetOldest() {
  std::vector<Entry> forgotten;
  {
    const std::lock_guard lock(mutex);
    // Cancelled and failed jobs must not push out pictures.
    int64_t drawn = 0, empty = 0;
    const auto count_of = [&](const Entry& entry) -> int64_t& {
      return entry->job.images.empty() ? empty : drawn;
    };
    for (const Entry& entry : entries) {
      if (HasEnded(entry->job.state)) ++count_of(entry);
    }
    std::erase_if(entries, [&](const Entry& entry) {
      if (!HasEnded(entry->job.state)) return false;
      int64_t& count = count_of(entry);
      if (count <= (entry->job.images.empty() ? kept_empty : limits.kept)) return false;
      --count;
      forgotten.push_back(entry);
      return true;
    });
  }
  for (const Entry& entry : forgotten) store.Remove(entry->job.id, entry->job.count);
}

void Queue::Impl::Raise(Mode to) {
  std::unique_lock lock(mutex);
  mode = std::max(mode, to);
  for (const Entry& entry : running) {
    if (mode != Mode::kStop || drawer->elsewhere() || entry->cancel.cancelled()) continue;
    entry->interrupted = true;
    entry->cancel.Cancel();
  }
  changed.notify_all();
  lock.unlock();
  // At once: the job that runs may take minutes, and those who wait for others need not.
  if (to > Mode::kFinishQueue && !drawer->elsewhere()) InterruptWaiting();
}

Queue::Queue(const Pipeline& pipeline, std::filesystem::path folder, Limits limits, Options options,
             std::shared_ptr<Drawer> drawer)
    : impl_(std::make_unique<Impl>(pipeline, std::move(folder), limits, std::move(options),
                                   std::move(drawer))) {}

Queue::~Queue() {
  Stop();
  impl_->drawing.join();
}

const std::vector<std::string>& Queue::problems() const { return impl_->problems; }

std::string Queue::Submit(Request request) {
  Impl& jobs = *impl_;
  const auto bytes = BytesOf(request.request);
  if (request.count < 1) Fail(ErrorKind::kUsage, "{} pictures cannot be drawn", request.count);
  bool busy = false;
  {
    const std::lock_guard lock(jobs.mutex);
    busy = !jobs.running.empty() || !jobs.waiting.empty();
  }
  try {
    jobs.pipeline.Check(request.request);
  } catch (const Error& error) {
    // The memory that the running job holds is free when this one begins; it is checked again then.
    if (error.kind() != ErrorKind::kOutOfMemory || !busy) throw;
  }

  std::unique_lock lock(jobs.mutex);
  if (jobs.mode != Impl::Mode::kOpen)
    Fail(ErrorKind::kInterrupted, "the server is about to stop and takes no new jobs");
  int64_t held = bytes;
  for (const Entry& entry : jobs.waiting) held += entry->bytes;
  const int64_t places = static_cast<int64_t>(jobs.waiting.size()) + jobs.reserved;
  if (places >= jobs.limits.queue || (held > jobs.limits.waiting_bytes && !jobs.waiting.empty()))
    throw QueueFull{places, jobs.RetryAfter()};
  ++jobs.reserved;
  // No two jobs of one moment: after a restart their times are their order.
  const int64_t created = jobs.last_created = std::max(UnixMilliseconds(), jobs.last_created + 1);
  lock.unlock();

  auto entry = std::make_shared<JobEntry>();
  entry->job = NewJob(request, jobs.pipeline.defaults(), NewJobId(), created);
  entry->request = std::move(request);
  entry->bytes = bytes;
  const std::string id = entry->job.id;
  try {
    jobs.store.Write(entry->job);
  } catch (...) {
    lock.lock();
    --jobs.reserved;
    throw;
  }
  lock.lock();
  --jobs.reserved;
  if (jobs.mode != Impl::Mode::kOpen) {  // the drawing thread may have looked for the last time
    lock.unlock();
    jobs.store.Remove(id, 0);
    Fail(ErrorKind::kInterrupted, "the server is about to stop and takes no new jobs");
  }
  jobs.entries.push_back(entry);
  jobs.waiting.push_back(entry);
  jobs.changed.notify_all();
  return id;
}

std::optional<Job> Queue::Find(const std::string& id) const {
  const std::lock_guard lock(impl_->mutex);
  const Entry entry = impl_->FindEntry(id);
  return entry ? std::optional(impl_->Snapshot(*entry)) : std::nullopt;
}

std::vector<Job> Queue::List() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<Job> jobs;
  for (auto entry = impl_->entries.rbegin(); entry != impl_->entries.rend(); ++entry)
    jobs.push_back(impl_->Snapshot(**entry));
  return jobs;
}

bool Queue::Cancel(const std::string& id) {
  Entry entry;
  {
    const std::lock_guard lock(impl_->mutex);
    entry = impl_->FindEntry(id);
    if (!entry || HasEnded(entry->job.state)) return false;
    entry->cancel.Cancel();
    impl_->changed.notify_all();
    if (impl_->drawer->elsewhere()) return true;
    const auto erased = std::erase(impl_->waiting, entry);
    if (erased == 0) return true;  // the drawing thread sees to it
  }
  impl_->Finish(entry, {State::kCancelled, ErrorKind::kInterrupted, "the job was cancelled before it began"});
  impl_->TellWaiting();
  return true;
}

bool Queue::Remove(const std::string& id) {
  Entry entry;
  {
    const std::lock_guard lock(impl_->mutex);
    entry = impl_->FindEntry(id);
    if (!entry || !HasEnded(entry->job.state)) return false;
    std::erase(impl_->entries, entry);
  }
  impl_->store.Remove(id, entry->job.count);
  return true;
}

std::optional<std::string> Queue::ReadPng(const std::string& id, int64_t index) const {
  {
    const std::lock_guard lock(impl_->mutex);
    const Entry entry = impl_->FindEntry(id);
    if (!entry || index < 0 || index >= static_cast<int64_t>(entry->job.images.size())) return std::nullopt;
  }
  return impl_->store.ReadPicture(id, index);
}

std::string Queue::Preview(const std::string& id) {
  const std::lock_guard lock(impl_->mutex);
  const Entry entry = impl_->FindEntry(id);
  if (!entry) return "";
  entry->preview_wanted = true;
  return entry->last_preview;
}

std::shared_ptr<Queue::Subscription> Queue::Subscribe(const std::string& id, Observer observer) {
  const auto listener = std::make_shared<Subscription>(std::move(observer));
  const auto first = listener->Hold();
  std::unique_lock lock(impl_->mutex);
  const Entry entry = impl_->FindEntry(id);
  if (!entry) return nullptr;
  const Job job = impl_->Snapshot(*entry);
  const std::string preview = entry->last_preview;
  if (!HasEnded(job.state)) entry->observers.push_back(listener);
  lock.unlock();
  listener->Tell(job, {HasEnded(job.state) ? Event::Kind::kEnd : Event::Kind::kProgress, ""});
  if (!preview.empty()) listener->Tell(job, {Event::Kind::kPreview, preview});
  // After the caller has let go of the handle, the observer is not called again.
  return {listener.get(), [listener](Subscription*) { listener->Close(); }};
}

void Queue::Drain(bool finish_queue) {
  impl_->Raise(finish_queue ? Impl::Mode::kFinishQueue : Impl::Mode::kFinishRunning);
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [&] { return impl_->finished; });
}

void Queue::Stop() { impl_->Raise(Impl::Mode::kStop); }

QueueStats Queue::Stats() const {
  const std::lock_guard lock(impl_->mutex);
  QueueStats stats = impl_->stats;
  stats.workers = impl_->drawer->workers();
  for (const Entry& entry : impl_->entries) ++stats.jobs[entry->job.state];
  return stats;
}

}  // namespace qwen_image::jobs
