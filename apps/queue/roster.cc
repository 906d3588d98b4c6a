#include "queue/roster.h"

#include "files/random_hex.h"
#include "queue/board.h"
#include "queue/connect.h"

namespace qwen_image::queue {
namespace {

using namespace std::chrono_literals;

constexpr auto kLately = 15s;  // workers tell every 4 s that they live
constexpr size_t kMostWorkers = 10'000;

}  // namespace

Roster::Roster(JetStream& jetstream, const std::string& queue_name, std::string build)
    : queue_name_(queue_name), build_(std::move(build)) {
  NatsConnection& connection = jetstream.connection();
  const auto hear = [&](const std::string& subject) {
    NatsResult result;
    auto subscription = connection.Subscribe(
        subject, [this](const NatsMessage& message) { Hear(message); }, result);
    if (!subscription) FailBy(result, "listening to workers");
    return subscription;
  };
  presence_ = hear(SubjectOf(kPresence, "*"));
  const std::string inbox = SubjectOf("here", RandomHex(16));
  answers_ = hear(inbox);
  (void)connection.Publish({.subject = SubjectOf(kAsk, Token(queue_name)), .reply = inbox});
}

void Roster::Hear(const NatsMessage& message) {
  Presence presence;
  try {
    presence = ParsePresence(message.data);
  } catch (const Error&) {
    return;
  }
  if (presence.model != queue_name_ || (!build_.empty() && presence.build != build_)) return;
  const std::lock_guard lock(mutex_);
  if (seen_.size() >= kMostWorkers && !seen_.contains(presence.worker)) return;
  seen_[presence.worker] = {Clock::now(), !presence.job.empty()};
  std::erase_if(seen_, [](const auto& one) { return Clock::now() - one.second.when > kLately; });
}

jobs::WorkersSeen Roster::Seen() const {
  const std::lock_guard lock(mutex_);
  jobs::WorkersSeen workers;
  for (const auto& [name, sighting] : seen_) {
    if (Clock::now() - sighting.when > kLately) continue;
    ++(sighting.draws ? workers.drawing : workers.waiting);
  }
  return workers;
}

}  // namespace qwen_image::queue
