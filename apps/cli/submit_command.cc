// qwen-image submit: fills the queue of a NATS server from a file with a job a line.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "command.h"
#include "core/fail.h"
#include "files/output_file.h"
#include "files/text.h"
#include "keep/identity.h"
#include "machine_options.h"
#include "model_options.h"
#include "nats_options.h"
#include "print.h"
#include "queue/board.h"
#include "queue/results.h"
#include "server/api/drawn_reply.h"
#include "server/api/job_fields.h"
#include "server/api/job_request_form.h"

namespace qwen_image::cli {
namespace {

using namespace std::chrono_literals;

struct SubmitOptions {
  std::string file;
  ModelFiles files;
  queue::NatsSettings nats;
  std::string queue_name;
  int64_t queue = 10'000;
  bool same_build = false, wait = false, quiet = false;
  std::filesystem::path fetch;
};

constexpr size_t kMaxLines = 100'000;

struct LineJob {
  size_t line = 0;
  queue::JobMessage message;
  jobs::Job job;
};

std::string JobName(const LineJob& job) { return fmt::format("line {}: {}", job.line, job.message.id); }

// All lines are read before one is sent. Each is the body of a POST /jobs.
std::vector<LineJob> ReadJobs(const SubmitOptions& o, const Pipeline& pipeline, const std::string& model) {
  std::ifstream file(o.file == "-" ? "/dev/stdin" : o.file);
  if (!file) Fail(ErrorKind::kBadInput, "cannot read {}", o.file);
  const std::string build = o.same_build ? keep::EngineIdentity() : "";
  std::vector<LineJob> read;
  std::set<std::string> ids;
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const std::string where = fmt::format("{}, line {}", o.file, number);
    if (line.size() > queue::kMaxRequestBytes) Fail(ErrorKind::kBadInput, "{}: the line is too long", where);
    if (read.size() == kMaxLines) Fail(ErrorKind::kUsage, "{}: more than {} jobs", where, kMaxLines);
    try {
      const Json body = api::ParseBody(line);
      const jobs::Request request = api::ParseJobRequest(body, pipeline);
      LineJob job{.line = number, .message = {.build = build, .request = api::JobRequestJson(request)}};
      job.message.id = queue::IdOfRequest(model, build, job.message.request);
      const auto now = std::chrono::system_clock::now().time_since_epoch();
      job.job = jobs::NewJob(request, pipeline.defaults(), job.message.id,
                             std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
      if (ids.insert(job.message.id).second) read.push_back(std::move(job));
    } catch (const Error& error) {
      Fail(ErrorKind::kBadInput, "{}: {}; nothing was sent", where, error.message());
    }
  }
  if (file.bad()) Fail(ErrorKind::kBadInput, "cannot read {}", o.file);
  if (read.empty()) Fail(ErrorKind::kBadInput, "{} holds no job", o.file);
  return read;
}

// A file may be submitted again, whose jobs wait already.
void CheckRoom(const SubmitOptions& o, queue::Board& board, const std::string& model,
               const std::vector<LineJob>& jobs) {
  const uint64_t waiting = board.Waiting(), most = static_cast<uint64_t>(o.queue);
  if (waiting + jobs.size() <= most) return;
  const auto count = static_cast<uint64_t>(std::count_if(jobs.begin(), jobs.end(), [&](const LineJob& job) {
    return board.WouldSend(model, job.message.id) == queue::Board::Sent::kSent;
  }));
  if (count == 0 || waiting + count <= most) return;
  Fail(ErrorKind::kCannotWrite,
       "the queue is full: {} jobs wait on the NATS server, and with these {} there would be more than {} "
       "(--queue); "
       "nothing was sent",
       waiting, count, o.queue);
}

void Send(const SubmitOptions& o, queue::Board& board, const std::string& model, std::vector<LineJob>& jobs) {
  size_t sent = 0;
  for (LineJob& job : jobs) {
    const char* what = "sent";
    try {
      switch (board.Send(model, job.message, job.job)) {
        case queue::Board::Sent::kSent:
          break;
        case queue::Board::Sent::kWaits:
          what = "is in the queue already";
          break;
        case queue::Board::Sent::kDone:
          what = "is drawn already";
          break;
      }
    } catch (const Error& error) {
      Fail(error.kind(),
           "{}; {} of {} jobs were sent, from line {} on none: submit the same file again, what was sent "
           "is not drawn twice",
           error.message(), sent, jobs.size(), job.line);
    }
    ++sent;
    job.message.request = nullptr;  // it may be large
    if (!o.quiet) Print(stdout, "{} {}\n", JobName(job), what);
  }
}

void SayIfNobodyIsThere(const SubmitOptions& o, queue::JetStream& jetstream, const std::string& model) {
  queue::NatsMessage reply;
  const auto wait = std::chrono::milliseconds(2s).count();
  const queue::NatsResult result = jetstream.connection().Request(
      {.subject = queue::SubjectOf(queue::kAsk, queue::Token(model))}, wait, reply);
  if (!result.ok() && !o.quiet)
    Print(stderr,
          "note: no worker with the model {} is there; the jobs wait for one: qwen-image work --nats …\n",
          model);
}

void Fetch(queue::Results& results, const std::filesystem::path& folder, const jobs::Job& job) {
  for (size_t i = 0; i < job.images.size(); ++i) {
    const std::string name = queue::PictureName(job.id, static_cast<int64_t>(i));
    const auto png = results.Read(name);
    if (!png)
      Fail(ErrorKind::kBadInput, "{} is not in {}; the worker has stored it in a folder", name,
           results.where());
    OutputFile file(folder / name);
    file.Write(png->data(), png->size());
    file.Commit();
  }
}

// Which jobs have ended since it was asked the last time; now and then it says that all should be looked up,
// as a message may be missed.
class Endings {
 public:
  explicit Endings(queue::NatsConnection& connection) {
    queue::NatsResult result;
    subscription_ = connection.Subscribe(
        queue::SubjectOf(queue::kEnded, "*"),
        [this](const queue::NatsMessage& message) {
          const std::lock_guard lock(mutex_);
          if (heard_.size() < kMaxLines) heard_.insert(queue::LastToken(message.subject));
          changed_.notify_all();
        },
        result);
  }

  // Null: all.
  std::optional<std::set<std::string>> Next() {
    std::unique_lock lock(mutex_);
    // Often, so that Ctrl-C is seen.
    changed_.wait_for(lock, 1s, [this] { return !heard_.empty(); });
    if (std::chrono::steady_clock::now() - all_ < 10s) return std::exchange(heard_, {});
    all_ = std::chrono::steady_clock::now();
    heard_.clear();
    return std::nullopt;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> heard_;
  std::chrono::steady_clock::time_point all_ = std::chrono::steady_clock::now();
  std::unique_ptr<queue::NatsSubscription> subscription_;
};

// None as long as the job has not ended.
std::optional<jobs::Job> EndOf(queue::Board& board, const std::string& id) {
  try {
    const auto known = board.Read(id);
    if (known && HasEnded(known->record.job.state)) return known->record.job;
  } catch (const queue::ServerGone&) {
    if (board.jetstream().connection().closed()) throw;
  }
  return std::nullopt;
}

// Until all have ended. Returns whether all were drawn.
bool Wait(const SubmitOptions& o, queue::Board& board, std::vector<LineJob> open, const CancelFlag& cancel) {
  Endings endings(board.jetstream().connection());
  const auto results = queue::OpenResults("", board.objects());
  bool all_drawn = true;
  for (std::optional<std::set<std::string>> ended; !open.empty(); ended = endings.Next()) {
    std::erase_if(open, [&](const LineJob& line) {
      cancel.ThrowIfCancelled();
      if (ended && !ended->contains(line.message.id)) return false;
      const std::optional<jobs::Job> job = EndOf(board, line.message.id);
      if (!job) return false;
      const bool drawn = job->state == jobs::State::kDone;
      all_drawn = all_drawn && drawn;
      if (drawn && !o.fetch.empty()) Fetch(*results, o.fetch, *job);
      if (!o.quiet)
        Print(stdout, "{} {}{}\n", JobName(line), Name(job->state),
              job->error.empty() ? "" : ": " + Printable(job->error, 2000));
      return true;
    });
    if (open.empty()) break;
  }
  return all_drawn;
}

int Run(const SubmitOptions& o, const CancelFlag& cancel) {
  (void)queue::CheckedAccess(o.nats);
  // Its weights are not read: it says what a job may ask for, and what it stands for where that is left out.
  const Pipeline pipeline(FindModel(o.files, o.quiet), {.check_memory = false, .device = Device::kCpu});
  const std::string model = o.queue_name.empty() ? api::ModelId(pipeline) : o.queue_name;
  std::vector<LineJob> jobs = ReadJobs(o, pipeline, model);
  if (!o.fetch.empty()) {
    std::error_code error;
    std::filesystem::create_directories(o.fetch, error);  // if that fails, this says why:
    CheckWritable(o.fetch / "probe");
  }
  const auto connection = queue::Connect(o.nats, "qwen-image submit");
  queue::JetStream jetstream(*connection);
  queue::Board board(jetstream);
  board.Need();
  CheckRoom(o, board, model, jobs);
  Send(o, board, model, jobs);
  SayIfNobodyIsThere(o, jetstream, model);
  if (!o.wait && o.fetch.empty()) return 0;
  return Wait(o, board, std::move(jobs), cancel) ? 0 : 1;
}

}  // namespace

Command SubmitCommand() {
  const auto o = std::make_shared<SubmitOptions>();
  const char* work = "Jobs";
  const OptionList own = {
      {.names = "--queue",
       .target = &o->queue,
       .help = "Send nothing if more jobs than these would wait (default: 10000)",
       .group = work,
       .range = {{1, 100000}}},
      {.names = "--same-build",
       .target = &o->same_build,
       .help = "Only workers of this very build and instruction set draw these jobs, so that all pictures "
               "have the bits "
               "that this machine would draw",
       .group = work},
      {.names = "--wait",
       .target = &o->wait,
       .help = "Wait until all jobs have ended, and say how; the exit code is 1 if one was not drawn",
       .group = work},
      {.names = "--fetch",
       .target = &o->fetch,
       .help = "Wait, and write the pictures to this folder: for workers that store them on the NATS server",
       .group = work,
       .type = "DIR"},
  };
  const Option file = {
      .names = "file",
      .target = &o->file,
      .help = "A job a line, as POST /jobs of the server takes it (docs/server.md); - is the standard input",
      .type = "FILE",
      .required = true};
  return {.name = "submit",
          .summary = "Send jobs to a queue that many machines share (a NATS server's)",
          .options = OptionList{file} +
                     NatsOptionList(o->nats, "The NATS server, for example nats://127.0.0.1:4222", true) +
                     OptionList{QueueNameOption(o->queue_name)} + own + ModelOptionList(o->files) +
                     OptionList{{.names = "-q,--quiet",
                                 .target = &o->quiet,
                                 .help = "Do not say what was sent and drawn",
                                 .group = "Reporting"}},
          .footer =
              "Examples:\n"
              "  qwen-image submit jobs.jsonl --nats nats://127.0.0.1:4222\n"
              "  echo '{\"prompt\": \"a red circle\", \"seed\": 7}' | qwen-image submit - --nats "
              "nats://127.0.0.1:4222 --fetch pictures",
          .run = [o](const Session& session) { return Run(*o, session.cancel); }};
}

}  // namespace qwen_image::cli
