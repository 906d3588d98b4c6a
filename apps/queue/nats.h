// A connection to a NATS server as this program sees one. The plugin beside the program implements it
// (nats_plugin.cc), which alone knows libnats: a program without the plugin needs nothing of NATS.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace qwen_image::queue {

struct NatsResult {
  enum class Outcome { kOk, kTimeout, kNoResponders, kDisconnected, kRefused, kTooLarge, kFailed };
  Outcome outcome = Outcome::kOk;
  std::string text;  // what libnats says of it

  bool ok() const { return outcome == Outcome::kOk; }
};

struct NatsMessage {
  std::string subject, reply, data;
  std::vector<std::pair<std::string, std::string>> headers;  // of a message that is sent
  std::string status;  // of one that came: the header "Status", with which servers say why there is no other
};

// Who connects, and how. Empty: not given.
struct NatsAccess {
  std::string url, name;
  std::string user, password, token;
  std::string creds_file, ca_file, cert_file, key_file;
  bool tls = false;
};

// Called on threads of libnats.
struct NatsEvents {
  std::function<void()> lost, back;
};

// Hears no more when it is gone; what is being heard at that moment is finished before.
class NatsSubscription {
 public:
  virtual ~NatsSubscription() = default;
};

// Any thread may use it. After a loss it connects again by itself.
class NatsConnection {
 public:
  virtual ~NatsConnection() = default;
  virtual NatsResult Publish(const NatsMessage& message) = 0;
  virtual NatsResult Request(const NatsMessage& message, int64_t milliseconds, NatsMessage& reply) = 0;
  // Null if it fails.
  virtual std::unique_ptr<NatsSubscription> Subscribe(const std::string& subject,
                                                      std::function<void(const NatsMessage&)> hear,
                                                      NatsResult& result) = 0;
  virtual int64_t max_payload() const = 0;
  // It was lost for so long that it is not tried again.
  virtual bool closed() const = 0;
};

// What the plugin shows. The number changes with anything above.
inline constexpr int kNatsPlugin = 1;
inline constexpr const char *kNatsPluginName = "qwen_image_nats_plugin",
                            *kNatsConnectName = "qwen_image_nats_connect";
using NatsConnect = NatsConnection* (*)(const NatsAccess& access, const NatsEvents& events,
                                        NatsResult& result);

}  // namespace qwen_image::queue
