// Signs of life. A machine that died or hangs sends none, and those that wait for its numbers would wait for
// ever.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "machines/wire.h"

namespace qwen_image::machines {

// The first machine and each other one hear each other.
class Heartbeat {
 public:
  // `on_silence` is called once, by the heartbeat's own thread, with the rank of a machine that was silent
  // for so long, or does not take its leave for so long after this one did.
  static constexpr int kMostSilenceSeconds = 9;
  Heartbeat(Wire& wire, std::function<void(int rank)> on_silence);
  // Takes leave of the others, who do the same.
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  struct Peer;
  void Run();
  // False: it has been silent for too long.
  bool Listen(Peer& peer);
  static void Send(Wire& wire, Peer& peer, bool last);
  bool AllLeft() const;

  Wire& wire_;
  const std::function<void(int)> on_silence_;
  std::vector<Peer> peers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool leaving_ = false;
  std::thread thread_;
};

}  // namespace qwen_image::machines
