// The thread that draws, and what it tells those who listen.
#include <new>

#include "core/fail.h"
#include "draw/record.h"
#include "files/png.h"
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

void Queue::Impl::Draw() {
  for (;;) {
    Entry entry;
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return mode != Mode::kOpen || !waiting.empty(); });
      if (waiting.empty() || mode > Mode::kFinishQueue) break;
      entry = waiting.front();
      waiting.pop_front();
      running = entry;
      entry->job.state = State::kRunning;
      entry->job.started = UnixMilliseconds();
    }
    try {
      TellWaiting();
      Finish(entry, DrawJob(entry));
    } catch (const std::exception&) {
      FinishWithoutMemory(entry);
    }
  }
  InterruptWaiting();
  const std::lock_guard lock(mutex);
  finished = true;
  changed.notify_all();
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

Ending Queue::Impl::DrawJob(const Entry& entry) {
  try {
    std::unique_lock lock(mutex);
    const Job job = entry->job;
    const int64_t count = entry->request.count;
    lock.unlock();
    store.Write(job);
    if (options.on_state) options.on_state(job);
    Tell(entry, {}, false);
    ProgressMeter meter(count);
    for (int64_t i = 0; i < count; ++i) DrawPicture(entry, i, meter);
    return {};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInterrupted || !entry->cancel.cancelled())
      return {State::kFailed, error.kind(), error.message()};
    const std::lock_guard lock(mutex);
    if (entry->interrupted) return {State::kInterrupted, ErrorKind::kInterrupted, kStoppedDrawing};
    return {State::kCancelled, ErrorKind::kInterrupted, "the job was cancelled"};
  } catch (const std::bad_alloc&) {
    return {State::kFailed, ErrorKind::kOutOfMemory, "there was not enough memory for this picture"};
  } catch (const std::exception& error) {
    return {State::kFailed, ErrorKind::kInternal, error.what()};
  }
}

void Queue::Impl::DrawPicture(const Entry& entry, int64_t index, ProgressMeter& meter) {
  GenerateRequest request = entry->request.request;  // nobody else touches it while the job runs
  request.seed += static_cast<uint64_t>(index);
  GenerateHooks hooks;
  const auto on_preview = [&](const Image& preview) {
    const std::string png = EncodePng(preview);
    std::unique_lock lock(mutex);
    entry->last_preview = png;
    lock.unlock();
    Tell(entry, {Event::Kind::kPreview, png}, false);
  };
  hooks.on_progress = [&](const Progress& progress) {
    std::unique_lock lock(mutex);
    const JobProgress before = std::exchange(entry->job.progress, meter.Update(progress));
    const bool same = before.stage == entry->job.progress.stage && before.step == entry->job.progress.step;
    // Previews cost time: only those that somebody sees are made.
    const bool watched = entry->preview_wanted || !entry->Listening().empty();
    lock.unlock();
    if (watched != static_cast<bool>(hooks.on_preview)) {
      if (watched)
        hooks.on_preview = on_preview;
      else
        hooks.on_preview = nullptr;
    }
    Tell(entry, {}, same);
  };
  hooks.cancel = &entry->cancel;
  hooks.on_note = [&](const std::string& note) {
    const std::lock_guard lock(mutex);
    entry->job.notes.push_back(note);
  };
  meter.BeginPicture(index);
  const Picture picture = pipeline.Generate(request, hooks);
  Json record = draw::DrawnRecord(picture, request, options.model_name, draw::ModelOf(pipeline));
  draw::NameSources(request, "uploaded", record);  // what came by a request has no name of its own
  store.WritePicture(entry->job.id, index, picture.image(), draw::FileText(record, options.mark));

  const std::lock_guard lock(mutex);
  Job& job = entry->job;
  job.images.push_back({picture.width, picture.height, picture.seed, picture.channels});
  if (index == 0) {
    job.settings.width = picture.width;
    job.settings.height = picture.height;
    job.settings.negative_prompt = picture.negative_prompt;
    job.settings.steps = picture.steps;
    job.settings.cfg = picture.cfg;
    job.settings.strength = picture.strength;
    if (picture.prompt_truncated)
      job.notes.push_back(
          fmt::format("the prompt has {} tokens, of which the first {} are used; the rest had no effect",
                      picture.prompt_tokens, request.max_sequence_length));
  }
  stats.pictures += 1;
  stats.steps += picture.steps_run;
  stats.seconds.encode_prompt += picture.seconds.encode_prompt;
  stats.seconds.encode_pictures += picture.seconds.encode_pictures;
  stats.seconds.denoise += picture.seconds.denoise;
  stats.seconds.decode += picture.seconds.decode;
  if (picture.steps_run > 0)
    stats.last_seconds_per_step = picture.seconds.denoise / static_cast<double>(picture.steps_run);
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
    if (running == entry) running = nullptr;
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
  if (running == entry) running = nullptr;
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
