#include "queue/worker.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/fail.h"
#include "files/random_hex.h"
#include "files/text.h"
#include "keep/identity.h"
#include "queue/connect.h"
#include "qwen_image/image_file.h"
#include "server/api/job_fields.h"
#include "server/jobs/draw_picture.h"
#include "server/jobs/store.h"

namespace qwen_image::queue {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kWait = 1s;          // for a job, until it is looked whether to stop
constexpr auto kTellEvery = 100ms;  // progress
constexpr auto kElsewhere = 5s;     // a job of another build waits so long before somebody is asked again
constexpr auto kReconnect = 600ms;  // until a worker is back that lost the server, at most
constexpr auto kAnswer = 2s;        // of another worker, if it lives
constexpr auto kTryFor = 10min;     // to reach a server that was lost
constexpr int64_t kMostTries = 3;

int64_t UnixMilliseconds() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string TriesText(const JobRecord& record) {
  std::string text;
  for (const Try& one : record.tries) {
    if (!one.counts) continue;
    text +=
        fmt::format("{}{}: {}", text.empty() ? "" : "; ", Printable(one.worker),
                    one.ended.empty() ? "nothing was heard of it after it had begun" : Printable(one.ended));
  }
  return text;
}

}  // namespace

std::string NewWorkerName() {
  char host[256] = "";
  if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  constexpr size_t kMaxHost = 60;
  return fmt::format("{}-{}-{}", Token(std::string(host).substr(0, kMaxHost)), getpid(), RandomHex(4));
}

Worker::Worker(const Pipeline& pipeline, Board& board, Results& results, WorkerSettings settings,
               const CancelFlag& stop)
    : pipeline_(pipeline),
      board_(board),
      results_(results),
      settings_(std::move(settings)),
      build_(keep::EngineIdentity()),
      stop_(stop) {}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  if (beating_.joinable()) beating_.join();
}

template <typename Do>
auto Worker::Insist(const Do& what) -> decltype(what()) {
  const Clock::time_point begun = Clock::now();
  for (bool said = false;; said = true) {
    try {
      return what();
    } catch (const ServerGone& gone) {
      const bool for_good = board_.jetstream().connection().closed() || Clock::now() - begun > kTryFor;
      if (for_good || stop_.cancelled()) throw;
      if (!said) settings_.say(gone.message() + "; trying again");
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kWait, [this] { return ended_; });
    }
  }
}

void Worker::Run() {
  const auto need = [&] {
    board_.Need();
    board_.NeedWorkers(settings_.queue_name, settings_.dead_after);
  };
  need();
  NatsConnection& connection = board_.jetstream().connection();
  const auto hear = [&](const std::string& subject, std::function<void(const NatsMessage&)> what) {
    NatsResult result;
    auto subscription = connection.Subscribe(subject, std::move(what), result);
    if (!subscription) FailBy(result, "listening to " + subject);
    return subscription;
  };
  const auto answer = [&](const NatsMessage& asked) {
    if (!asked.reply.empty()) (void)connection.Publish({.subject = asked.reply, .data = PresenceNow()});
  };
  const auto asked = hear(SubjectOf(kAsk, Token(settings_.queue_name)), answer);
  const auto asked_alone = hear(SubjectOf(kWorker, settings_.name), answer);
  const auto controlled = hear(SubjectOf(kControl, "*"), [this](const NatsMessage& message) {
    Control(LastToken(message.subject), message.data);
  });
  beating_ = std::thread([this] { Beat(); });
  settings_.say(fmt::format("{} waits for jobs of {}; pictures go to {}", settings_.name,
                            settings_.queue_name, results_.where()));
  while (!stop_.cancelled()) {
    bool lost = false;
    const std::optional<Delivery> delivery = Insist([&]() -> std::optional<Delivery> {
      if (stop_.cancelled()) return std::nullopt;
      if (std::exchange(lost, true)) need();  // a server may come back without what it kept
      return board_.Take(settings_.queue_name, kWait);
    });
    if (delivery) Handle(*delivery);
  }
}

void Worker::Handle(const Delivery& delivery) {
  const std::string id = LastToken(delivery.subject);
  if (jobs::IsJobId(id)) return HandleKnown(delivery, id);
  settings_.say(fmt::format("a message in the queue is no job of qwen-image, and was taken out: {}",
                            Quoted(delivery.subject)));
  Insist([&] { board_.jetstream().Acknowledge(delivery); });
}

// Requests of other machines are checked as the server checks those that come over HTTP.
jobs::Request Worker::ReadRequest(const JobMessage& message) const {
  jobs::Request request = api::ParseJobRequest(board_.RequestOf(message), pipeline_);
  request.request.resume_folder = settings_.resume_folder;
  pipeline_.Check(request.request);
  return request;
}

// The request, if this worker may draw it; else what is to be done with the message is done.
std::optional<jobs::Request> Worker::Accept(const Delivery& delivery, const std::string& id,
                                            Board::Known& known) {
  try {
    const JobMessage message = ParseJobMessage(delivery.data, "the message of job " + id);
    if (message.id != id) Fail(ErrorKind::kBadInput, "the message of job {} is that of {}", id, message.id);
    if (message.build.empty() || message.build == build_) return Insist([&] { return ReadRequest(message); });
    settings_.say(
        fmt::format("{} wants another build of this program ({}); it waits for a worker of that build", id,
                    Printable(message.build)));
    Insist([&] { board_.jetstream().GiveBack(delivery, kElsewhere); });
  } catch (const ServerGone&) {
    throw;
  } catch (const Error& error) {
    GiveUp(delivery, known, error);
  }
  return std::nullopt;
}

void Worker::HandleKnown(const Delivery& delivery, const std::string& id) {
  Board::Known known =
      Insist([&] { return board_.Read(id); }).value_or(Board::Known{.record = {.job = {.id = id}}});
  if (HasEnded(known.record.job.state)) {
    Insist([&] { board_.jetstream().Acknowledge(delivery); });
    return;
  }
  const std::optional<jobs::Request> request = Accept(delivery, id, known);
  if (!request) return;
  const Verdict verdict = Judge(id, known.record);
  if (verdict == Verdict::kElsewhere || stop_.cancelled()) {
    Insist([&] { board_.jetstream().GiveBack(delivery, stop_.cancelled() ? 0s : settings_.dead_after); });
  } else if (verdict == Verdict::kSetAside) {
    SetAside(delivery, known.record);
  } else {
    Draw(delivery, std::move(known), *request);
  }
}

Worker::Verdict Worker::Judge(const std::string& id, const JobRecord& record) {
  int64_t tries = 0;
  for (const Try& one : record.tries) {
    if (!one.counts || (one.worker == settings_.name && one.ended.empty())) continue;
    // The server may give a job to a second worker while the first, of which it lost sight, still draws.
    if (one.ended.empty() && StillDraws(one.worker, id)) return Verdict::kElsewhere;
    ++tries;
  }
  return tries >= kMostTries ? Verdict::kSetAside : Verdict::kDraw;
}

// A worker that has lost the server, too, is back a moment later than this one.
bool Worker::StillDraws(const std::string& worker, const std::string& id) {
  NatsConnection& connection = board_.jetstream().connection();
  for (int times = 0; times < 3 && !stop_.cancelled(); ++times) {
    NatsMessage reply;
    const auto wait = std::chrono::milliseconds(kAnswer).count();
    if (connection.Request({.subject = SubjectOf(kWorker, Token(worker))}, wait, reply).ok()) {
      try {
        return ParsePresence(reply.data).job == id;
      } catch (const Error&) {
        return false;
      }
    }
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kReconnect, [this] { return ended_; });
  }
  return false;
}

void Worker::Draw(const Delivery& delivery, Board::Known known, const jobs::Request& request) {
  jobs::Job& job = known.record.job;
  const int64_t created = job.created > 0 ? job.created : UnixMilliseconds();
  job = jobs::NewJob(request, pipeline_.defaults(), job.id, created);
  job.state = jobs::State::kRunning;
  job.started = UnixMilliseconds();
  known.record.worker = settings_.name;
  known.record.kept_in = results_.kind();
  known.record.tries.push_back({.worker = settings_.name, .begun = job.started});
  if (!Insist([&] { return board_.Write(known.record, known.sequence); })) {
    // It was cancelled at this moment, or an answer was lost: the next look will tell.
    Insist([&] { board_.jetstream().GiveBack(delivery); });
    return;
  }
  settings_.say(fmt::format(
      "{} begins: {}x{}, {} steps, {} of them{}", job.id, job.width(), job.height(), job.steps(), job.count,
      known.record.tries.size() > 1 ? fmt::format(" (try {})", known.record.tries.size()) : ""));
  Drawing drawing{.delivery = delivery, .id = job.id};
  drawing.last_progress = Clock::now();
  const auto set_drawing = [&](Drawing* now) {
    const std::lock_guard lock(mutex_);
    drawing_ = now;
    presence_is_new_ = true;
    changed_.notify_all();
  };
  set_drawing(&drawing);
  const auto done = [&] { set_drawing(nullptr); };
  try {
    DrawPictures(drawing, request, job);
    End(delivery, known.record, jobs::State::kDone);
    done();
  } catch (const ServerGone&) {
    done();
    throw;
  } catch (const std::bad_alloc&) {
    done();
    GiveUp(delivery, known, Error(ErrorKind::kOutOfMemory, "there is not enough memory"));
  } catch (const Error& error) {
    done();
    known = Insist([&] { return board_.Read(known.record.job.id); }).value_or(known);
    if (drawing.cancelled_by_user) {
      settings_.say(known.record.job.id + " was cancelled");
      Insist([&] { board_.jetstream().Acknowledge(delivery); });
    } else if (error.kind() == ErrorKind::kInterrupted) {
      HandBack(delivery, known);
    } else if (error.kind() == ErrorKind::kCannotWrite) {
      HandBack(delivery, known);
      throw;  // the next job's pictures could not be stored either
    } else {
      GiveUp(delivery, known, error);
    }
  }
}

void Worker::DrawPictures(Drawing& drawing, const jobs::Request& request, jobs::Job& job) {
  jobs::ProgressMeter meter(request.count);
  jobs::DrawingHooks hooks;
  Board& board = board_;
  hooks.on_progress = [&](const jobs::JobProgress& progress) {
    const Clock::time_point now = Clock::now();
    const bool same_step = std::exchange(job.progress.step, progress.step) == progress.step;
    drawing.last_progress = now;
    if (same_step && now - drawing.last_told.load() < kTellEvery) return;
    drawing.last_told = now;
    // Who misses it hears the next.
    (void)board.jetstream().connection().Publish(
        {.subject = SubjectOf(kProgress, job.id), .data = ProgressText(progress)});
  };
  hooks.watched = [&] { return Clock::now() < drawing.watched_until.load(); };
  hooks.on_preview = [&](const std::string& png) {
    (void)board.jetstream().connection().Publish({.subject = SubjectOf(kPreview, job.id), .data = png});
  };
  hooks.on_note = [&](const std::string& note) { job.notes.push_back(note); };
  hooks.on_resumed = [&](int64_t steps) {
    settings_.say(fmt::format("{} goes on after step {}", job.id, steps));
  };
  hooks.cancel = &drawing.cancel;
  for (int64_t i = 0; i < request.count; ++i) {
    drawing.cancel.ThrowIfCancelled();
    const Picture picture = jobs::DrawPicture(pipeline_, request, i, meter, hooks);
    const std::string png = EncodePng(
        picture.image(), jobs::TextOf(pipeline_, picture, request, settings_.model_name, settings_.mark));
    Insist([&] { results_.Keep(PictureName(job.id, i), png); });
    RemoveResumeState(picture);
    jobs::AddPicture(picture, request, job);
  }
}

// The result is stored before; then this is what everybody will read, and only then the job leaves the queue.
void Worker::End(const Delivery& delivery, JobRecord record, jobs::State state) {
  const std::string id = record.job.id;
  record.job.state = state;
  record.job.finished = UnixMilliseconds();
  if (record.worker.empty()) record.worker = settings_.name;
  record.job.progress = {};
  const bool ours = Insist([&] {
    for (;;) {
      const std::optional<Board::Known> now = board_.Read(id);
      if (now && HasEnded(now->record.job.state)) return false;  // another was first, or it was cancelled
      if (board_.Write(record, now ? now->sequence : 0)) return true;
    }
  });
  Insist([&] { board_.jetstream().Acknowledge(delivery); });
  Insist([&] { board_.objects().Delete(RequestObject(id)); });
  (void)board_.jetstream().connection().Publish({.subject = SubjectOf(kEnded, id)});
  const double seconds = static_cast<double>(record.job.finished - record.job.started) / 1000;
  if (!ours)
    settings_.say(fmt::format("{} had ended before", id));
  else if (state == jobs::State::kDone)
    settings_.say(fmt::format("{} done in {:.1f} s", id, seconds));
  else
    settings_.say(fmt::format("{} failed: {}", id, Printable(record.job.error, 1000)));
}

void Worker::SetAside(const Delivery& delivery, JobRecord& record) {
  record.job.error = fmt::format("set aside after {} tries: {}", kMostTries, TriesText(record));
  record.job.error_kind = ErrorKind::kInternal;
  End(delivery, record, jobs::State::kFailed);
}

// A failure that would be the same elsewhere ends the job; else others may try.
void Worker::GiveUp(const Delivery& delivery, Board::Known& known, const Error& error) {
  JobRecord& record = known.record;
  if (error.kind() != ErrorKind::kOutOfMemory) {
    record.job.error = error.message();
    record.job.error_kind = error.kind();
    return End(delivery, record, jobs::State::kFailed);
  }
  if (record.tries.empty() || record.tries.back().worker != settings_.name ||
      !record.tries.back().ended.empty())
    record.tries.push_back({.worker = settings_.name, .begun = UnixMilliseconds()});
  record.tries.back().ended = "not enough memory: " + error.message();
  if (Judge(record.job.id, record) == Verdict::kSetAside) return SetAside(delivery, record);
  settings_.say(fmt::format("{} does not fit in memory here; another worker may try", record.job.id));
  Insist([&] { return board_.Write(record, known.sequence); });
  Insist([&] { board_.jetstream().GiveBack(delivery, kElsewhere); });
}

void Worker::HandBack(const Delivery& delivery, Board::Known& known) {
  if (!known.record.tries.empty() && known.record.tries.back().worker == settings_.name) {
    known.record.tries.back().ended = "it was stopped";
    known.record.tries.back().counts = false;
    known.record.job.state = jobs::State::kQueued;
    Insist([&] { return board_.Write(known.record, known.sequence); });
  }
  Insist([&] { board_.jetstream().GiveBack(delivery); });
  settings_.say(known.record.job.id + " goes back to the queue");
}

}  // namespace qwen_image::queue
