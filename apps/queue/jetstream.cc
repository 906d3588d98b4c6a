#include "queue/jetstream.h"

#include "core/fail.h"
#include "files/base64.h"
#include "files/text.h"
#include "queue/connect.h"
#include "queue/json_fields.h"

namespace qwen_image::queue {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 5s;  // for an answer of the server
// What a server may make us parse: a message of its largest size in base64, or the subjects of a stream.
constexpr size_t kMaxReply = 64 << 20;
constexpr size_t kMaxReplyValues = 500'000;

// JetStream's numbers of errors.
constexpr int kNoMessage = 10037, kStreamNotFound = 10059, kStreamNameInUse = 10058,
              kWrongLastSequence = 10071, kStoreFailed = 10077, kJetStreamOff = 10039,
              kJetStreamOffHere = 10076;
constexpr int kNotAvailable = 10008;  // JetStream: the server is about to start it
constexpr int kNoStorage = 10047, kNoMemory = 10028, kNoResources = 10023;

int ErrorCodeOf(const Json& reply) {
  const auto error = reply.find("error");
  if (error == reply.end() || !error->is_object()) return 0;
  const auto code = error->find("err_code");
  return code != error->end() && code->is_number_integer() ? code->get<int>() : -1;
}

[[noreturn]] void FailByReply(const Json& reply, const std::string& what) {
  const int code = ErrorCodeOf(reply);
  if (code == kJetStreamOff || code == kJetStreamOffHere)
    Fail(ErrorKind::kBadInput, "{}: JetStream is off for this user or server (nats-server -js)", what);
  if (code == kNotAvailable) throw ServerGone(what + ": JetStream is not available at the moment");
  const Json& error = reply["error"];
  const auto text = error.find("description");
  Fail(ErrorKind::kBadInput, "{}: the NATS server says: {}", what,
       text != error.end() && text->is_string() ? Printable(text->get<std::string>()) : "?");
}

Json ParseReply(const std::string& text, const std::string& what) {
  if (text.size() > kMaxReply) Fail(ErrorKind::kBadInput, "{}: the answer has {} bytes", what, text.size());
  Json reply = ParseJson(text, what + ": the answer of the NATS server", kMaxReplyValues);
  if (!reply.is_object())
    Fail(ErrorKind::kBadInput, "{}: the NATS server did not answer with an object", what);
  return reply;
}

}  // namespace

NatsMessage JetStream::Ask(const NatsMessage& message, std::chrono::milliseconds wait,
                           const std::string& what) {
  NatsMessage reply;
  const NatsResult result = connection_.Request(message, wait.count(), reply);
  if (!result.ok()) FailBy(result, what);
  return reply;
}

Json JetStream::Api(const std::string& request, const Json& body, const std::string& what, int missing) {
  const NatsMessage reply =
      Ask({.subject = "$JS.API." + request, .data = body.is_null() ? "" : body.dump()}, kPatience, what);
  Json json = ParseReply(reply.data, what);
  const int code = ErrorCodeOf(json);
  if (code != 0 && code == missing) return nullptr;
  if (code != 0) FailByReply(json, what);
  return json;
}

void JetStream::NeedStream(const Json& config) {
  const auto name = config.at("name").get<std::string>();
  const std::string what = "the stream " + name;
  if (!Api("STREAM.INFO." + name, nullptr, what, kStreamNotFound).is_null()) return;
  // Two that start at once may both find none; the second then finds its name in use.
  Api("STREAM.CREATE." + name, config, what, kStreamNameInUse);
}

void JetStream::NeedConsumer(const std::string& stream, const Json& config) {
  const auto name = config.at("durable_name").get<std::string>();
  Api("CONSUMER.DURABLE.CREATE." + stream + "." + name, {{"stream_name", stream}, {"config", config}},
      "the consumer " + name);
}

StoreResult JetStream::Store(const std::string& subject, const std::string& data, const StoreRules& rules) {
  NatsMessage message{.subject = subject, .data = data};
  if (!rules.id.empty()) message.headers.emplace_back("Nats-Msg-Id", rules.id);
  if (rules.last_sequence)
    message.headers.emplace_back("Nats-Expected-Last-Subject-Sequence", std::to_string(*rules.last_sequence));
  if (rules.replaces_subject) message.headers.emplace_back("Nats-Rollup", "sub");
  const std::string what = "storing " + subject;
  const Json reply = ParseReply(Ask(message, kPatience, what).data, what);
  switch (ErrorCodeOf(reply)) {
    case 0:
      break;
    case kWrongLastSequence:
      return {.outcome = StoreResult::Outcome::kConflict};
    case kStoreFailed:
    case kNoStorage:
    case kNoMemory:
    case kNoResources:
      return {.outcome = StoreResult::Outcome::kFull};
    default:
      FailByReply(reply, what);
  }
  const bool duplicate = reply.value("duplicate", Json(false)) == true;
  return {duplicate ? StoreResult::Outcome::kDuplicate : StoreResult::Outcome::kStored,
          NumberIn(reply, "seq")};
}

std::optional<StoredMessage> JetStream::Get(const std::string& stream, const Json& which) {
  const std::string what = "a message of " + stream;
  const Json reply = Api("STREAM.MSG.GET." + stream, which, what, kNoMessage);
  if (reply.is_null()) return std::nullopt;
  const auto message = reply.find("message");
  if (message == reply.end() || !message->is_object())
    Fail(ErrorKind::kBadInput, "{}: the NATS server sent none", what);
  std::optional<std::string> data = DecodeBase64(TextIn(*message, "data"));
  if (!data) Fail(ErrorKind::kBadInput, "{}: its data is not base64", what);
  return StoredMessage{NumberIn(*message, "seq"), TextIn(*message, "subject"), *std::move(data)};
}

std::optional<StoredMessage> JetStream::Last(const std::string& stream, const std::string& subject) {
  return Get(stream, {{"last_by_subj", subject}});
}

std::optional<StoredMessage> JetStream::Next(const std::string& stream, const std::string& subject,
                                             uint64_t sequence) {
  return Get(stream, {{"seq", sequence}, {"next_by_subj", subject}});
}

void JetStream::Delete(const std::string& stream, uint64_t sequence) {
  Api("STREAM.MSG.DELETE." + stream, {{"seq", sequence}}, "deleting a message of " + stream, kNoMessage);
}

void JetStream::Purge(const std::string& stream, const std::string& subject) {
  Api("STREAM.PURGE." + stream, {{"filter", subject}}, "emptying " + subject);
}

std::map<std::string, uint64_t> JetStream::Subjects(const std::string& stream, const std::string& filter) {
  const Json reply = Api("STREAM.INFO." + stream, {{"subjects_filter", filter}}, "the stream " + stream);
  std::map<std::string, uint64_t> counts;
  const auto state = reply.find("state");
  if (state == reply.end() || !state->is_object()) return counts;
  const auto subjects = state->find("subjects");
  if (subjects == state->end() || !subjects->is_object()) return counts;
  for (const auto& [subject, count] : subjects->items()) {
    if (count.is_number_unsigned()) counts[subject] = count.get<uint64_t>();
  }
  return counts;
}

uint64_t JetStream::Count(const std::string& stream) {
  const Json reply = Api("STREAM.INFO." + stream, nullptr, "the stream " + stream);
  const auto state = reply.find("state");
  return state != reply.end() && state->is_object() ? NumberIn(*state, "messages") : 0;
}

std::optional<Delivery> JetStream::Pull(const std::string& stream, const std::string& consumer,
                                        std::chrono::milliseconds wait) {
  const auto nanoseconds = std::chrono::nanoseconds(wait).count();
  // The server says when the time is over. Who gave up before it could lose a message that is under way.
  NatsMessage reply = Ask({.subject = "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + consumer,
                           .data = Json({{"batch", 1}, {"expires", nanoseconds}}).dump()},
                          wait + kPatience, "waiting for a job");
  if (!reply.status.empty()) {
    if (reply.status == "404" || reply.status == "408") return std::nullopt;
    Fail(ErrorKind::kBadInput, "waiting for a job: the NATS server answers with status {}",
         Printable(reply.status));
  }
  if (!reply.reply.starts_with("$JS.ACK."))
    Fail(ErrorKind::kBadInput, "waiting for a job: what came is no message of a stream");
  return Delivery{std::move(reply.subject), std::move(reply.data), std::move(reply.reply)};
}

void JetStream::Acknowledge(const Delivery& delivery) {
  Ask({.subject = delivery.reply, .data = "+ACK"}, kPatience, "acknowledging a job");
}

void JetStream::GiveBack(const Delivery& delivery, std::chrono::milliseconds delay) {
  const auto nanoseconds = std::chrono::nanoseconds(delay).count();
  Ask({.subject = delivery.reply,
       .data = nanoseconds > 0 ? "-NAK " + Json({{"delay", nanoseconds}}).dump() : std::string("-NAK")},
      kPatience, "giving a job back");
}

void JetStream::StillAtWork(const Delivery& delivery) noexcept {
  // The next one may get through.
  (void)connection_.Publish({.subject = delivery.reply, .data = "+WPI"});
}

void JetStream::Publish(const std::string& subject, const std::string& data) {
  const NatsResult result = connection_.Publish({.subject = subject, .data = data});
  if (!result.ok()) FailBy(result, "telling " + subject);
}

}  // namespace qwen_image::queue
