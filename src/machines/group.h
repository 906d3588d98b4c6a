// Machines that compute something together. All of them call the same functions in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "machines/wire.h"

namespace qwen_image::machines {

// Work that is cut evenly over `parts` machines: those from Begin(i) to Begin(i + 1) are machine i's.
struct Cut {
  int64_t total = 0;
  int parts = 1;
  int64_t Begin(int part) const { return total * part / parts; }
  int64_t Count(int part) const { return Begin(part + 1) - Begin(part); }
};

class Group {
 public:
  // `ranks`: of the wire, in this group's order; this machine's is among them. The wire outlives the group.
  Group(Wire& wire, std::vector<int> ranks);

  int rank() const { return rank_; }  // in the group
  int size() const { return static_cast<int>(ranks_.size()); }

  struct Outgoing {
    int to;  // in the group; not this machine
    std::span<const std::byte> bytes;
  };
  struct Incoming {
    int from;
    std::span<std::byte> bytes;
  };
  // Between two machines messages arrive in the order of the lists. Returns when all have been sent and
  // received.
  void Exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) const;

  // The bytes of machine `from`, on all.
  void Broadcast(int from, std::span<std::byte> bytes) const;
  // `parts`: one for each machine, of which this one's is filled; afterwards all are, on all.
  void Share(std::span<const std::span<std::byte>> parts) const;

  // The bytes that this machine has sent so far, in all groups of its wire.
  static int64_t SentBytes();

 private:
  Wire& wire_;
  std::vector<int> ranks_;
  int rank_ = -1;
};

}  // namespace qwen_image::machines
