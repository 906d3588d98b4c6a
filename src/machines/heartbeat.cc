#include "machines/heartbeat.h"

#include <array>
#include <chrono>
#include <memory>
#include <optional>

namespace qwen_image::machines {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kHeartbeatTag = 2;
// A large message makes progress only while somebody looks after it, which this thread does meanwhile.
constexpr auto kLook = std::chrono::milliseconds(100);
constexpr auto kBeat = std::chrono::seconds(1);
constexpr auto kMostSilence = std::chrono::seconds(Heartbeat::kMostSilenceSeconds);

}  // namespace

struct Heartbeat::Peer {
  int rank;
  Clock::time_point heard = Clock::now(), sent = {};
  bool left = false;  // it took its leave
  // A beat is one byte: whether it is the last one.
  std::array<std::byte, 1> in = {}, out = {};
  std::unique_ptr<Wire::Message> receiving = {}, sending = {};
};

Heartbeat::Heartbeat(Wire& wire, std::function<void(int)> on_silence)
    : wire_(wire), on_silence_(std::move(on_silence)) {
  if (wire.rank() == 0) {
    for (int rank = 1; rank < wire.size(); ++rank) peers_.push_back({.rank = rank});
  } else {
    peers_.push_back({.rank = 0});
  }
  thread_ = std::thread([this] { Run(); });
}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

bool Heartbeat::Listen(Peer& peer) {
  while (!peer.left) {
    if (!peer.receiving) peer.receiving = wire_.Receive(peer.rank, kHeartbeatTag, peer.in);
    if (!peer.receiving->Done()) break;
    peer.receiving.reset();
    peer.heard = Clock::now();
    peer.left = peer.in[0] != std::byte{0};
  }
  return peer.left || Clock::now() - peer.heard < kMostSilence;
}

// One at a time: whoever does not listen gets no heap of them.
void Heartbeat::Send(Wire& wire, Peer& peer, bool last) {
  if (peer.sending && !peer.sending->Done()) return;
  peer.sending.reset();
  const bool sent_last = peer.out[0] != std::byte{0};
  if (sent_last || (!last && Clock::now() - peer.sent < kBeat)) return;
  peer.out[0] = std::byte{last};
  peer.sending = wire.Send(peer.rank, kHeartbeatTag, peer.out);
  peer.sent = Clock::now();
}

bool Heartbeat::AllLeft() const {
  for (const Peer& peer : peers_)
    if (!peer.left || peer.sending || peer.out[0] == std::byte{0}) return false;
  return true;
}

void Heartbeat::Run() {
  std::optional<Clock::time_point> left;
  while (true) {
    if (left) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } else {
      std::unique_lock lock(mutex_);
      if (wake_.wait_for(lock, kLook, [&] { return leaving_; })) left = Clock::now();
    }
    for (Peer& peer : peers_) {
      Send(wire_, peer, left.has_value());
      if (!Listen(peer)) return on_silence_(peer.rank);
      // It lives and waits for something else than the end.
      if (left && !peer.left && Clock::now() - *left > kMostSilence) return on_silence_(peer.rank);
    }
    if (left && AllLeft()) return;
  }
}

}  // namespace qwen_image::machines
