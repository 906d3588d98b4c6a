// JetStream by its public protocol: requests in JSON, and messages that are kept until they are acknowledged.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "files/json.h"
#include "queue/nats.h"

namespace qwen_image::queue {

struct StoredMessage {
  uint64_t sequence = 0;
  std::string subject, data;
};

// How a message is to be stored.
struct StoreRules {
  std::string id = {};  // a second one of the same id is not stored
  std::optional<uint64_t> last_sequence =
      {};                         // of its subject: if it is another, nothing is stored; 0: there is none
  bool replaces_subject = false;  // earlier ones of the subject go
};

struct StoreResult {
  enum class Outcome { kStored, kDuplicate, kConflict, kFull } outcome = Outcome::kStored;
  uint64_t sequence = 0;
};

// A message that is ours until it is acknowledged, or until nothing is heard of us for the consumer's time.
struct Delivery {
  std::string subject, data;
  std::string reply;  // where acknowledgements go
};

// Every function throws Error: ServerGone where the server may be back later.
class JetStream {
 public:
  explicit JetStream(NatsConnection& connection) : connection_(connection) {}

  NatsConnection& connection() { return connection_; }

  // A stream that is there keeps the limits that somebody gave it.
  void NeedStream(const Json& config);
  // A consumer that is there gets these settings.
  void NeedConsumer(const std::string& stream, const Json& config);

  StoreResult Store(const std::string& subject, const std::string& data, const StoreRules& rules = {});
  std::optional<StoredMessage> Last(const std::string& stream, const std::string& subject);
  // The first of the subject from `sequence` on.
  std::optional<StoredMessage> Next(const std::string& stream, const std::string& subject, uint64_t sequence);
  void Delete(const std::string& stream, uint64_t sequence);  // also if it is gone already
  void Purge(const std::string& stream, const std::string& subject);
  // Messages by subject; `filter` may have wildcards.
  std::map<std::string, uint64_t> Subjects(const std::string& stream, const std::string& filter);
  uint64_t Count(const std::string& stream);

  // Waits for a message; none when the time is over.
  std::optional<Delivery> Pull(const std::string& stream, const std::string& consumer,
                               std::chrono::milliseconds wait);
  void Acknowledge(const Delivery& delivery);  // the server has confirmed it on return
  // To another worker, after a while.
  void GiveBack(const Delivery& delivery, std::chrono::milliseconds delay = {});
  void StillAtWork(const Delivery& delivery) noexcept;

  void Publish(const std::string& subject, const std::string& data);  // to those who listen now

 private:
  NatsMessage Ask(const NatsMessage& message, std::chrono::milliseconds wait, const std::string& what);
  // The reply; with `missing`, null for a reply with this error.
  Json Api(const std::string& request, const Json& body, const std::string& what, int missing = 0);
  std::optional<StoredMessage> Get(const std::string& stream, const Json& which);

  NatsConnection& connection_;
};

}  // namespace qwen_image::queue
