#include "queue/remote_drawer.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>

#include "core/fail.h"
#include "files/text.h"
#include "keep/identity.h"
#include "queue/connect.h"
#include "queue/roster.h"
#include "server/api/job_request_form.h"
#include "server/jobs/queue_impl.h"

namespace qwen_image::queue {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using jobs::Entry;
using QueueImpl = jobs::Queue::Impl;

constexpr auto kTick = 1s;
constexpr auto kWatchEvery = 2s;  // a worker is told that previews are seen
// A job of which nothing is heard for so long is looked up.
constexpr auto kSilent = 3s;
constexpr size_t kLookUps = 20;      // in a tick
constexpr size_t kMostHeard = 1000;  // messages that wait to be read; more are dropped, and looked up later
constexpr const char* kNoWorker = "waiting for a worker with this model: none was heard from lately";
constexpr const char* kLeft =
    "the server was stopped; the job stays in the queue of the NATS server, and a server with the same "
    "--jobs-dir "
    "will show what became of it";

struct Heard {
  std::string what, id, data;
};

// Of a job that was handed over.
struct Following {
  Clock::time_point heard{}, watched{};
  bool missed = false;  // it was looked up, and was neither in the queue nor ended
};

class RemoteDrawer : public jobs::Drawer {
 public:
  RemoteDrawer(Board& board, Results& results, RemoteSettings settings)
      : board_(board),
        results_(results),
        settings_(std::move(settings)),
        build_(settings_.same_build ? keep::EngineIdentity() : ""),
        roster_(board.jetstream(), settings_.queue_name, build_) {}

  void Run(QueueImpl& queue) override;
  bool elsewhere() const override { return true; }
  std::optional<jobs::WorkersSeen> workers() const override { return roster_.Seen(); }

 private:
  std::deque<Heard> Wait(QueueImpl& queue);
  void HandOver(QueueImpl& queue);
  void Withdraw(QueueImpl& queue);
  void Obey(QueueImpl& queue, const Heard& heard);
  void Advance(QueueImpl& queue, const Entry& entry, const std::string& progress);
  void LookUpSilent(QueueImpl& queue);
  void LookUp(QueueImpl& queue, const Entry& entry);
  void BringHome(QueueImpl& queue, const Entry& entry, const JobRecord& record);
  void SayWhetherAnyCan(QueueImpl& queue);
  void Leave(QueueImpl& queue);
  void Fail(QueueImpl& queue, const Entry& entry, const Error& error);

  static std::vector<Entry> Open(QueueImpl& queue);
  static Entry Find(QueueImpl& queue, const std::string& id);

  Board& board_;
  Results& results_;
  const RemoteSettings settings_;
  const std::string build_;
  Roster roster_;

  std::deque<Heard> heard_;  // guarded by the queue's mutex
  std::map<std::string, Following> following_;
  Clock::time_point last_look_{};
  bool said_gone_ = false;
};

void RemoteDrawer::Run(QueueImpl& queue) {
  std::vector<std::unique_ptr<NatsSubscription>> subscriptions;
  for (const char* what : {kProgress, kPreview, kEnded}) {
    NatsResult result;
    subscriptions.push_back(board_.jetstream().connection().Subscribe(
        SubjectOf(what, "*"),
        [this, &queue, what](const NatsMessage& message) {
          const std::lock_guard lock(queue.mutex);
          if (heard_.size() >= kMostHeard) return;
          heard_.push_back({what, LastToken(message.subject), message.data});
          queue.changed.notify_all();
        },
        result));
  }
  for (;;) {
    const std::deque<Heard> heard = Wait(queue);
    {
      const std::lock_guard lock(queue.mutex);
      if (queue.mode > QueueImpl::Mode::kFinishQueue) break;
      if (queue.mode == QueueImpl::Mode::kFinishQueue && queue.waiting.empty() && queue.running.empty())
        break;
    }
    try {
      HandOver(queue);
      Withdraw(queue);
      for (const Heard& message : heard) Obey(queue, message);
      LookUpSilent(queue);
      said_gone_ = false;
    } catch (const ServerGone& gone) {
      // Jobs wait here until it is back; what was missed is looked up then.
      if (!std::exchange(said_gone_, true)) settings_.say(gone.message());
    }
    SayWhetherAnyCan(queue);
  }
  subscriptions.clear();
  Leave(queue);
}

std::deque<Heard> RemoteDrawer::Wait(QueueImpl& queue) {
  std::unique_lock lock(queue.mutex);
  queue.changed.wait_for(lock, kTick, [&] {
    if (!heard_.empty() || queue.mode != QueueImpl::Mode::kOpen) return true;
    const auto is_new = [](const Entry& entry) { return !entry->handed_over || entry->cancel.cancelled(); };
    return !said_gone_ && (std::any_of(queue.waiting.begin(), queue.waiting.end(), is_new) ||
                           std::any_of(queue.running.begin(), queue.running.end(), is_new));
  });
  return std::exchange(heard_, {});
}

std::vector<Entry> RemoteDrawer::Open(QueueImpl& queue) {
  const std::lock_guard lock(queue.mutex);
  std::vector<Entry> open(queue.waiting.begin(), queue.waiting.end());
  open.insert(open.end(), queue.running.begin(), queue.running.end());
  return open;
}

Entry RemoteDrawer::Find(QueueImpl& queue, const std::string& id) {
  for (const Entry& entry : Open(queue)) {
    if (entry->job.id == id) return entry;
  }
  return nullptr;
}

void RemoteDrawer::HandOver(QueueImpl& queue) {
  for (const Entry& entry : Open(queue)) {
    if (entry->handed_over || entry->cancel.cancelled()) continue;
    try {
      board_.Send(settings_.queue_name,
                  {.id = entry->job.id, .build = build_, .request = api::JobRequestJson(entry->request)},
                  entry->job);
    } catch (const ServerGone&) {
      throw;
    } catch (const Error& error) {
      Fail(queue, entry, error);
      continue;
    }
    const std::lock_guard lock(queue.mutex);
    entry->handed_over = true;
    entry->request = {};  // what it holds is on the server now
    entry->bytes = 0;
    following_[entry->job.id] = {.heard = Clock::now()};
  }
}

void RemoteDrawer::Withdraw(QueueImpl& queue) {
  for (const Entry& entry : Open(queue)) {
    if (!entry->cancel.cancelled()) continue;
    if (entry->handed_over && !board_.Cancel(settings_.queue_name, entry->job.id)) {
      LookUp(queue, entry);  // it has just ended
      continue;
    }
    following_.erase(entry->job.id);
    queue.Finish(entry, {jobs::State::kCancelled, ErrorKind::kInterrupted, "the job was cancelled"});
  }
}

// What others say of a job is believed as far as it can be shown; what became of it is read from its record.
void RemoteDrawer::Obey(QueueImpl& queue, const Heard& heard) {
  const Entry entry = Find(queue, heard.id);
  if (!entry || !entry->handed_over) return;
  following_[heard.id].heard = Clock::now();
  if (heard.what == kProgress) {
    Advance(queue, entry, heard.data);
  } else if (heard.what == kEnded) {
    LookUp(queue, entry);
  } else {
    constexpr size_t kMostPreview = 1 << 20;
    constexpr std::string_view kPngMagic = "\x89PNG\r\n";
    if (heard.data.size() <= kMostPreview && heard.data.starts_with(kPngMagic))
      queue.SetPreview(entry, heard.data);
  }
}

void RemoteDrawer::Advance(QueueImpl& queue, const Entry& entry, const std::string& text) {
  jobs::JobProgress progress;
  try {
    progress = ParseProgress(text);
  } catch (const Error&) {
    return;
  }
  bool begins = false;
  {
    const std::lock_guard lock(queue.mutex);
    begins = entry->job.state == jobs::State::kQueued;
    if (begins) queue.Begin(entry, jobs::UnixMilliseconds());
  }
  if (begins) {
    queue.TellBegun(entry);
    queue.TellWaiting();
  }
  queue.SetProgress(entry, progress);
  Following& following = following_[entry->job.id];
  if (!queue.Watched(entry) || Clock::now() - following.watched < kWatchEvery) return;
  following.watched = Clock::now();
  board_.jetstream().Publish(SubjectOf(kControl, entry->job.id), kWatch);
}

void RemoteDrawer::LookUpSilent(QueueImpl& queue) {
  const Clock::time_point now = Clock::now();
  if (now - last_look_ < kTick) return;
  last_look_ = now;
  size_t looked = 0;
  for (const Entry& entry : Open(queue)) {
    if (!entry->handed_over || now - following_[entry->job.id].heard < kSilent) continue;
    following_[entry->job.id].heard = now;
    LookUp(queue, entry);
    if (++looked == kLookUps) return;
  }
}

void RemoteDrawer::LookUp(QueueImpl& queue, const Entry& entry) {
  const std::string id = entry->job.id;
  try {
    const std::optional<Board::Known> known = board_.Read(id);
    if (known && HasEnded(known->record.job.state)) return BringHome(queue, entry, known->record);
    Following& following = following_[id];
    if (board_.InQueue(settings_.queue_name, id)) {
      following.missed = false;
    } else if (std::exchange(following.missed, true)) {  // twice: it did not just end
      qwen_image::Fail(
          ErrorKind::kInterrupted,
          "the job is not in the queue of the NATS server any more; send it again to have it drawn");
    }
  } catch (const ServerGone&) {
    throw;
  } catch (const Error& error) {
    Fail(queue, entry, error);
  }
}

void RemoteDrawer::BringHome(QueueImpl& queue, const Entry& entry, const JobRecord& record) {
  const jobs::Job& drawn = record.job;
  const std::string id = entry->job.id;
  for (size_t i = 0; drawn.state == jobs::State::kDone && i < drawn.images.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    const std::optional<std::string> png = results_.Read(PictureName(id, index));
    if (!png)
      qwen_image::Fail(
          ErrorKind::kBadInput,
          "{} drew the job, but its picture is not in {}: it is in {}; give the workers and the server the "
          "same --results",
          Printable(record.worker), results_.where(),
          record.kept_in == kInFolder ? "the folder of that worker" : "the object store");
    queue.store.WritePng(id, index, *png);
  }
  jobs::Ending ending{drawn.state, drawn.error_kind, drawn.error};
  {
    const std::lock_guard lock(queue.mutex);
    jobs::Job& job = entry->job;
    if (drawn.started > 0) job.started = drawn.started;
    if (drawn.state == jobs::State::kDone) {
      job.images = drawn.images;
      job.settings = drawn.settings;
      queue.stats.pictures += static_cast<int64_t>(drawn.images.size());
    }
    for (const std::string& note : drawn.notes) {
      if (std::find(job.notes.begin(), job.notes.end(), note) == job.notes.end())
        job.notes.push_back(Printable(note, 1000));
    }
    std::erase(queue.waiting, entry);
  }
  following_.erase(id);
  queue.Finish(entry, std::move(ending));
  queue.TellWaiting();
}

void RemoteDrawer::Fail(QueueImpl& queue, const Entry& entry, const Error& error) {
  following_.erase(entry->job.id);
  const bool interrupted = error.kind() == ErrorKind::kInterrupted;
  queue.Finish(
      entry, {interrupted ? jobs::State::kInterrupted : jobs::State::kFailed, error.kind(), error.message()});
}

// A job that nobody can draw says so, where its stage stands.
void RemoteDrawer::SayWhetherAnyCan(QueueImpl& queue) {
  const jobs::WorkersSeen seen = roster_.Seen();
  const std::string stage = seen.waiting + seen.drawing > 0 ? "" : kNoWorker;
  std::vector<Entry> changed;
  {
    const std::lock_guard lock(queue.mutex);
    for (const Entry& entry : queue.waiting) {
      if (entry->job.progress.stage == stage) continue;
      entry->job.progress.stage = stage;
      changed.push_back(entry);
    }
  }
  for (const Entry& entry : changed) queue.Tell(entry, {}, false);
}

// What is not drawn yet goes on elsewhere; only those who listen here must be told that they will not hear of
// it.
void RemoteDrawer::Leave(QueueImpl& queue) {
  for (const Entry& entry : Open(queue)) {
    std::unique_lock lock(queue.mutex);
    jobs::Job job = entry->job;
    const jobs::Listeners listeners = entry->Listening();
    entry->observers.clear();
    lock.unlock();
    job.state = jobs::State::kInterrupted;
    job.error_kind = ErrorKind::kInterrupted;
    job.error = entry->handed_over ? kLeft : jobs::kStoppedWaiting;
    for (const auto& listener : listeners) listener->Tell(job, {jobs::Event::Kind::kEnd, ""});
  }
}

}  // namespace

std::shared_ptr<jobs::Drawer> DrawElsewhere(Board& board, Results& results, RemoteSettings settings) {
  return std::make_shared<RemoteDrawer>(board, results, std::move(settings));
}

}  // namespace qwen_image::queue
