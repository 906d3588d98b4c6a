#include "queue/board.h"

#include "core/fail.h"
#include "files/text.h"

namespace qwen_image::queue {
namespace {

using namespace std::chrono_literals;

constexpr const char* kPrefix = "qwen_image.";
// A guard against a sender that never ends. Who needs other limits makes the stream before.
constexpr int64_t kMaxJobs = 100'000;
constexpr auto kRecordsFor = std::chrono::hours(24 * 30);
constexpr auto kNoTwiceFor = 10min;  // a job whose sender heard no answer and sent again

int64_t Nanoseconds(std::chrono::nanoseconds time) { return time.count(); }

std::string ConsumerOf(const std::string& model) { return "workers_" + Token(model); }

}  // namespace

std::string SubjectOf(const char* what, const std::string& of) {
  return fmt::format("{}{}.{}", kPrefix, what, of);
}

std::string Token(const std::string& name) {
  std::string token = name;
  for (char& c : token) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
    if (!plain) c = '_';
  }
  return token.empty() ? "_" : token;
}

std::string LastToken(const std::string& subject) { return subject.substr(subject.rfind('.') + 1); }

std::string Board::JobSubject(const std::string& model, const std::string& id) {
  return fmt::format("{}jobs.{}.{}", kPrefix, Token(model), id);
}

std::string Board::RecordSubject(const std::string& id) { return fmt::format("{}records.{}", kPrefix, id); }

void Board::Need() {
  jetstream_.NeedStream({{"name", kJobs},
                         {"description", "jobs for workers of qwen-image"},
                         {"subjects", {fmt::format("{}jobs.*.*", kPrefix)}},
                         {"retention", "workqueue"},
                         {"max_consumers", -1},
                         {"max_msgs", kMaxJobs},
                         {"max_bytes", -1},
                         {"max_msg_size", 2 * kMaxMessageBytes},
                         {"storage", "file"},
                         {"discard", "new"},
                         {"num_replicas", 1},
                         {"duplicate_window", Nanoseconds(kNoTwiceFor)}});
  jetstream_.NeedStream({{"name", kRecords},
                         {"description", "what became of jobs of qwen-image"},
                         {"subjects", {RecordSubject("*")}},
                         {"retention", "limits"},
                         {"max_consumers", -1},
                         {"max_msgs", -1},
                         {"max_bytes", -1},
                         {"max_age", Nanoseconds(kRecordsFor)},
                         {"max_msgs_per_subject", 1},
                         {"storage", "file"},
                         {"discard", "old"},
                         {"num_replicas", 1}});
  objects_.NeedBucket();
}

bool Board::InQueue(const std::string& model, const std::string& id) {
  return jetstream_.Last(kJobs, JobSubject(model, id)).has_value();
}

Board::Sent Board::WouldSend(const std::string& model, const std::string& id,
                             const std::optional<Known>& known) {
  const auto state = known ? known->record.job.state : jobs::State::kFailed;
  if (state == jobs::State::kDone) return Sent::kDone;
  return !HasEnded(state) && InQueue(model, id) ? Sent::kWaits : Sent::kSent;
}

Board::Sent Board::Send(const std::string& model, JobMessage message, const jobs::Job& job) {
  const std::string& id = message.id;
  const std::optional<Known> known = Read(id);
  if (const Sent would = WouldSend(model, id, known); would != Sent::kSent) return would;
  if (!Write({.job = job}, known ? known->sequence : 0)) return Sent::kWaits;  // somebody else sends it
  std::string text = JobMessageText(message);
  if (text.size() > kMaxMessageBytes) {
    objects_.Put(RequestObject(id), message.request.dump());
    message.request = nullptr;
    text = JobMessageText(message);
  }
  // A job that failed and is sent again is no duplicate, so its id has a number.
  const uint64_t round = known ? known->sequence : 0;
  const StoreResult result = jetstream_.Store(JobSubject(model, id), text,
                                              {.id = fmt::format("{}-{}", id, round), .last_sequence = 0});
  if (result.outcome == StoreResult::Outcome::kFull) {
    jetstream_.Purge(kRecords, RecordSubject(id));
    Fail(ErrorKind::kCannotWrite, "the queue of the NATS server is full: {} jobs wait, and it takes no more",
         Waiting());
  }
  return Sent::kSent;
}

bool Board::Cancel(const std::string& model, const std::string& id) {
  for (std::optional<Known> known = Read(id); known && !HasEnded(known->record.job.state); known = Read(id)) {
    jobs::Job& job = known->record.job;
    const bool begun = job.state == jobs::State::kRunning;
    job.state = jobs::State::kCancelled;
    job.error_kind = ErrorKind::kInterrupted;
    job.error = begun ? "the job was cancelled" : "the job was cancelled before it began";
    if (!Write(known->record, known->sequence)) continue;
    if (const auto message = jetstream_.Last(kJobs, JobSubject(model, id)))
      jetstream_.Delete(kJobs, message->sequence);
    objects_.Delete(RequestObject(id));
    jetstream_.Publish(SubjectOf(kControl, id), kCancel);
    return true;
  }
  return false;
}

std::optional<Board::Known> Board::Read(const std::string& id) {
  const auto message = jetstream_.Last(kRecords, RecordSubject(id));
  if (!message) return std::nullopt;
  Known known{.record = {.job = {.id = id}}, .sequence = message->sequence};
  try {
    const JobRecord record = ParseJobRecord(message->data, "the record of job " + Printable(id));
    if (record.job.id == id) known.record = record;
  } catch (const Error&) {  // somebody wrote nonsense; the next who knows more replaces it
  }
  return known;
}

bool Board::Write(const JobRecord& record, uint64_t read_sequence) {
  const StoreResult result =
      jetstream_.Store(RecordSubject(record.job.id), JobRecordText(record), {.last_sequence = read_sequence});
  if (result.outcome == StoreResult::Outcome::kFull)
    Fail(ErrorKind::kCannotWrite, "the NATS server has no room for the record of a job");
  return result.outcome != StoreResult::Outcome::kConflict;
}

void Board::NeedWorkers(const std::string& model, std::chrono::milliseconds dead_after) {
  jetstream_.NeedConsumer(kJobs, {{"durable_name", ConsumerOf(model)},
                                  {"deliver_policy", "all"},
                                  {"ack_policy", "explicit"},
                                  {"ack_wait", Nanoseconds(dead_after)},
                                  {"max_deliver", -1},
                                  {"filter_subject", JobSubject(model, "*")},
                                  {"replay_policy", "instant"},
                                  {"max_ack_pending", 10'000}});
}

std::optional<Delivery> Board::Take(const std::string& model, std::chrono::milliseconds wait) {
  return jetstream_.Pull(kJobs, ConsumerOf(model), wait);
}

Json Board::RequestOf(const JobMessage& message) {
  if (!message.request.is_null()) return message.request;
  const auto text = objects_.Get(RequestObject(message.id), kMaxRequestBytes);
  if (!text)
    Fail(ErrorKind::kBadInput, "the request of job {} is not in the object store any more", message.id);
  constexpr size_t kMaxValues = 20'000;
  return ParseJson(*text, "the request of job " + message.id, kMaxValues);
}

}  // namespace qwen_image::queue
