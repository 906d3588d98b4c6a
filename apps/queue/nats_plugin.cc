// The plugin: NatsConnection by libnats. It uses nothing else of this program, and throws nothing.
#include <nats/nats.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "queue/nats.h"

namespace qwen_image::queue {
namespace {

using Outcome = NatsResult::Outcome;

// A server that is restarted is back within seconds, one that is moved within minutes.
constexpr int64_t kReconnectWait = 500;  // milliseconds
constexpr int kReconnects = 1200;        // ten minutes
constexpr int64_t kConnectTimeout = 5000, kPing = 10'000;

Outcome OutcomeOf(natsStatus status) {
  switch (status) {
    case NATS_OK:
      return Outcome::kOk;
    case NATS_TIMEOUT:
      return Outcome::kTimeout;
    case NATS_NO_RESPONDERS:
      return Outcome::kNoResponders;
    case NATS_CONNECTION_AUTH_FAILED:
    case NATS_NOT_PERMITTED:
      return Outcome::kRefused;
    case NATS_CONNECTION_CLOSED:
    case NATS_CONNECTION_DISCONNECTED:
    case NATS_NO_SERVER:
    case NATS_IO_ERROR:
    case NATS_STALE_CONNECTION:
      return Outcome::kDisconnected;
    case NATS_MAX_PAYLOAD:
      return Outcome::kTooLarge;
    default:
      return Outcome::kFailed;
  }
}

NatsResult ResultOf(natsStatus status) {
  if (status == NATS_OK) return {};
  const char* detail = nats_GetLastError(nullptr);
  std::string text = natsStatus_GetText(status);
  // The detail names no secret: libnats puts files, hosts and what the server said there.
  if (detail && *detail) text.append(": ").append(detail);
  return {OutcomeOf(status), text};
}

template <typename Thing, void (*kDestroy)(Thing*)>
struct Destroyer {
  void operator()(Thing* thing) const { kDestroy(thing); }
};
using OwnedMsg = std::unique_ptr<natsMsg, Destroyer<natsMsg, natsMsg_Destroy>>;
using OwnedOptions = std::unique_ptr<natsOptions, Destroyer<natsOptions, natsOptions_Destroy>>;

NatsMessage MessageOf(natsMsg* msg) {
  const auto text = [](const char* chars) { return chars ? std::string(chars) : std::string(); };
  NatsMessage message{.subject = text(natsMsg_GetSubject(msg)), .reply = text(natsMsg_GetReply(msg))};
  message.data.assign(natsMsg_GetData(msg), static_cast<size_t>(natsMsg_GetDataLength(msg)));
  const char* status = nullptr;
  if (natsMsgHeader_Get(msg, "Status", &status) == NATS_OK) message.status = text(status);
  return message;
}

natsStatus MakeMsg(const NatsMessage& message, OwnedMsg& made) {
  natsMsg* msg = nullptr;
  natsStatus status =
      natsMsg_Create(&msg, message.subject.c_str(), message.reply.empty() ? nullptr : message.reply.c_str(),
                     message.data.data(), static_cast<int>(message.data.size()));
  made.reset(msg);
  for (const auto& [name, value] : message.headers) {
    if (status == NATS_OK) status = natsMsgHeader_Set(msg, name.c_str(), value.c_str());
  }
  return status;
}

// What a subscription's thread calls. It lives until libnats says that this was the last time.
struct Hearing {
  std::mutex mutex;
  std::function<void(const NatsMessage&)> hear;
};
using SharedHearing = std::shared_ptr<Hearing>;

void OnMessage(natsConnection*, natsSubscription*, natsMsg* msg, void* closure) {
  const OwnedMsg owned(msg);
  const SharedHearing& hearing = *static_cast<SharedHearing*>(closure);
  const std::lock_guard lock(hearing->mutex);
  if (hearing->hear) hearing->hear(MessageOf(msg));
}

void OnComplete(void* closure) { delete static_cast<SharedHearing*>(closure); }

class Subscription : public NatsSubscription {
 public:
  Subscription(natsSubscription* subscription, SharedHearing hearing)
      : subscription_(subscription), hearing_(std::move(hearing)) {}
  ~Subscription() override {
    {
      const std::lock_guard lock(hearing_->mutex);
      hearing_->hear = nullptr;
    }
    natsSubscription_Unsubscribe(subscription_);
    natsSubscription_Destroy(subscription_);
  }
  Subscription(const Subscription&) = delete;
  Subscription& operator=(const Subscription&) = delete;

 private:
  natsSubscription* subscription_;
  const SharedHearing hearing_;
};

// At the end of a program that has used TLS, libnats 3.4.1 frees what OpenSSL frees again, which ends it with
// SIGABRT instead of its exit code. A handler that is added behind libnats' own runs before it.
void LeaveBeforeLibnats() {
  on_exit(
      [](int code, void*) {
        std::fflush(nullptr);
        _exit(code);
      },
      nullptr);
}

class Connection : public NatsConnection {
 public:
  explicit Connection(NatsEvents events) : events_(std::move(events)) {}
  ~Connection() override {
    closing_ = true;
    natsConnection_Destroy(connection_);
    // Its threads may still be about to call what is gone then.
    nats_CloseAndWait(kConnectTimeout);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  NatsResult Open(const NatsAccess& access) {
    natsOptions* made = nullptr;
    natsStatus status = natsOptions_Create(&made);
    const OwnedOptions options(made);
    if (status == NATS_OK) status = Fill(access, made);
    static std::once_flag once;
    if (access.tls) std::call_once(once, LeaveBeforeLibnats);
    if (status == NATS_OK) status = natsConnection_Connect(&connection_, made);
    return ResultOf(status);
  }

  NatsResult Publish(const NatsMessage& message) override {
    OwnedMsg msg;
    natsStatus status = ConnectedOr(MakeMsg(message, msg));
    if (status == NATS_OK) status = natsConnection_PublishMsg(connection_, msg.get());
    return ResultOf(status);
  }

  NatsResult Request(const NatsMessage& message, int64_t milliseconds, NatsMessage& reply) override {
    OwnedMsg msg;
    natsMsg* answer = nullptr;
    natsStatus status = ConnectedOr(MakeMsg(message, msg));
    if (status == NATS_OK) status = natsConnection_RequestMsg(&answer, connection_, msg.get(), milliseconds);
    const OwnedMsg owned(answer);
    if (answer) reply = MessageOf(answer);
    return ResultOf(status);
  }

  std::unique_ptr<NatsSubscription> Subscribe(const std::string& subject,
                                              std::function<void(const NatsMessage&)> hear,
                                              NatsResult& result) override {
    auto hearing = std::make_shared<Hearing>();
    hearing->hear = std::move(hear);
    auto closure = std::make_unique<SharedHearing>(hearing);
    natsSubscription* subscription = nullptr;
    const natsStatus status =
        natsConnection_Subscribe(&subscription, connection_, subject.c_str(), OnMessage, closure.get());
    result = ResultOf(status);
    if (status != NATS_OK) return nullptr;
    SharedHearing* const raw = closure.release();
    natsSubscription_SetOnCompleteCB(subscription, OnComplete, raw);
    // What is published next finds it there.
    natsConnection_FlushTimeout(connection_, kConnectTimeout);
    return std::make_unique<Subscription>(subscription, hearing);
  }

  int64_t max_payload() const override { return natsConnection_GetMaxPayload(connection_); }
  bool closed() const override { return natsConnection_IsClosed(connection_); }

 private:
  // While the server is gone, libnats would keep messages for it, and let requests wait for nothing.
  natsStatus ConnectedOr(natsStatus status) const {
    if (status != NATS_OK) return status;
    return natsConnection_Status(connection_) == NATS_CONN_STATUS_CONNECTED ? NATS_OK
                                                                            : NATS_CONNECTION_DISCONNECTED;
  }

  static void OnLost(natsConnection*, void* closure) {
    const auto* self = static_cast<Connection*>(closure);
    if (!self->closing_ && self->events_.lost) self->events_.lost();
  }
  static void OnBack(natsConnection*, void* closure) {
    const auto* self = static_cast<Connection*>(closure);
    if (self->events_.back) self->events_.back();
  }

  static natsStatus FillCredentials(const NatsAccess& access, natsOptions* options) {
    const auto given = [](const std::string& text) { return text.empty() ? nullptr : text.c_str(); };
    natsStatus s = NATS_OK;
    if (!access.creds_file.empty())
      s = natsOptions_SetUserCredentialsFromFiles(options, access.creds_file.c_str(), nullptr);
    if (s == NATS_OK && !access.user.empty())
      s = natsOptions_SetUserInfo(options, access.user.c_str(), given(access.password));
    if (s == NATS_OK && !access.token.empty()) s = natsOptions_SetToken(options, access.token.c_str());
    if (s == NATS_OK && access.tls) s = natsOptions_SetSecure(options, true);
    if (s == NATS_OK && !access.ca_file.empty())
      s = natsOptions_LoadCATrustedCertificates(options, access.ca_file.c_str());
    if (s == NATS_OK && !access.cert_file.empty())
      s = natsOptions_LoadCertificatesChain(options, access.cert_file.c_str(), access.key_file.c_str());
    return s;
  }

  natsStatus Fill(const NatsAccess& access, natsOptions* options) {
    natsStatus s = natsOptions_SetURL(options, access.url.c_str());
    if (s == NATS_OK) s = FillCredentials(access, options);
    if (s == NATS_OK) s = natsOptions_SetName(options, access.name.c_str());
    if (s == NATS_OK) s = natsOptions_SetTimeout(options, kConnectTimeout);
    if (s == NATS_OK) s = natsOptions_SetPingInterval(options, kPing);
    if (s == NATS_OK) s = natsOptions_SetMaxReconnect(options, kReconnects);
    if (s == NATS_OK) s = natsOptions_SetReconnectWait(options, kReconnectWait);
    // A request that waits for an answer which was lost would wait for nothing.
    if (s == NATS_OK) s = natsOptions_SetFailRequestsOnDisconnect(options, true);
    if (s == NATS_OK) s = natsOptions_SetDisconnectedCB(options, OnLost, this);
    if (s == NATS_OK) s = natsOptions_SetReconnectedCB(options, OnBack, this);
    return s;
  }

  const NatsEvents events_;
  std::atomic<bool> closing_ = false;
  natsConnection* connection_ = nullptr;
};

}  // namespace
}  // namespace qwen_image::queue

using qwen_image::queue::NatsAccess;
using qwen_image::queue::NatsConnection;
using qwen_image::queue::NatsEvents;
using qwen_image::queue::NatsResult;

extern "C" __attribute__((visibility("default"))) int qwen_image_nats_plugin() {
  return qwen_image::queue::kNatsPlugin;
}

extern "C" __attribute__((visibility("default"))) NatsConnection* qwen_image_nats_connect(
    const NatsAccess& access, const NatsEvents& events, NatsResult& result) {
  auto connection = std::make_unique<qwen_image::queue::Connection>(events);
  result = connection->Open(access);
  return result.ok() ? connection.release() : nullptr;
}
