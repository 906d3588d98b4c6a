#include "machines/group.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "core/fail.h"

namespace qwen_image::machines {
namespace {

constexpr int kDataTag = 1;

std::atomic<int64_t> sent_bytes{0};

// Calls use(part) for each part of `bytes` that fits into a message.
template <typename Byte, typename Use>
void ForMessages(std::span<Byte> bytes, const Use& use) {
  for (size_t first = 0; first < bytes.size(); first += Wire::kMostBytes)
    use(bytes.subspan(first, std::min(Wire::kMostBytes, bytes.size() - first)));
}

// Looks again and again, at first at once and then with naps, which grow with the time that it takes:
// processors may be shared with the machines that are waited for, and a server's machines may wait for days.
void WaitFor(std::vector<std::unique_ptr<Wire::Message>>& messages) {
  constexpr auto kEager = std::chrono::microseconds(200);
  constexpr auto kLongestNap = std::chrono::microseconds(2000);
  constexpr int kShare = 50;  // a nap is as much of the time so far
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    std::erase_if(messages, [](const auto& message) { return message->Done(); });
    if (messages.empty()) return;
    const std::chrono::nanoseconds waited = std::chrono::steady_clock::now() - start;
    if (waited < kEager) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(waited / kShare, kLongestNap));
    }
  }
}

}  // namespace

Group::Group(Wire& wire, std::vector<int> ranks) : wire_(wire), ranks_(std::move(ranks)) {
  const auto own = std::find(ranks_.begin(), ranks_.end(), wire.rank());
  if (own == ranks_.end()) Fail(ErrorKind::kInternal, "a machine is not in its own group");
  rank_ = static_cast<int>(own - ranks_.begin());
}

void Group::Exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) const {
  std::vector<std::unique_ptr<Wire::Message>> messages;
  for (const Incoming& in : incoming)
    ForMessages(in.bytes, [&](std::span<std::byte> part) {
      messages.push_back(wire_.Receive(ranks_[static_cast<size_t>(in.from)], kDataTag, part));
    });
  for (const Outgoing& out : outgoing) {
    sent_bytes += static_cast<int64_t>(out.bytes.size());
    ForMessages(out.bytes, [&](std::span<const std::byte> part) {
      messages.push_back(wire_.Send(ranks_[static_cast<size_t>(out.to)], kDataTag, part));
    });
  }
  WaitFor(messages);
}

void Group::Broadcast(int from, std::span<std::byte> bytes) const {
  if (rank_ != from) {
    const Incoming incoming{from, bytes};
    return Exchange({}, {&incoming, 1});
  }
  std::vector<Outgoing> outgoing;
  for (int to = 0; to < size(); ++to)
    if (to != rank_) outgoing.push_back({to, bytes});
  Exchange(outgoing, {});
}

void Group::Share(std::span<const std::span<std::byte>> parts) const {
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (int other = 0; other < size(); ++other) {
    if (other == rank_) continue;
    outgoing.push_back({other, parts[static_cast<size_t>(rank_)]});
    incoming.push_back({other, parts[static_cast<size_t>(other)]});
  }
  Exchange(outgoing, incoming);
}

int64_t Group::SentBytes() { return sent_bytes; }

}  // namespace qwen_image::machines
