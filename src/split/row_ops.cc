#include "split/row_ops.h"

#include <vector>

#include "qwen_image/error.h"
#include "split/bytes.h"

namespace qwen_image::split {
namespace {

using machines::Group;

enum class Signal : uint8_t { kState, kStop };

void Send(const Group& group, int to, Signal signal, std::span<Array* const> state) {
  std::vector<Group::Outgoing> outgoing = {{to, std::as_bytes(std::span(&signal, 1))}};
  for (const Array* x : state) outgoing.push_back({to, BytesOf(x->view)});
  group.Exchange(outgoing, {});
}

void Receive(const Group& group, int from, std::span<std::byte> bytes) {
  const Group::Incoming incoming{from, bytes};
  group.Exchange({}, {&incoming, 1});
}

}  // namespace

Ops::Blocks RowOps::OwnBlocks(size_t count) const {
  const machines::Cut cut{static_cast<int64_t>(count), group_.size()};
  return {static_cast<size_t>(cut.Begin(group_.rank())), static_cast<size_t>(cut.Begin(group_.rank() + 1))};
}

void RowOps::TakeOver(std::span<Array* const> state) {
  if (group_.rank() == 0) return;
  const Profile::Scope timed(profile_, "exchange");
  const int before = group_.rank() - 1, behind = group_.rank() + 1;
  Signal signal{};
  Receive(group_, before, std::as_writable_bytes(std::span(&signal, 1)));
  if (signal == Signal::kStop) {
    if (behind < group_.size()) Send(group_, behind, Signal::kStop, {});
    throw Error(ErrorKind::kInterrupted, "interrupted");
  }
  for (const Array* x : state) Receive(group_, before, BytesOf(x->view));
}

void RowOps::HandOver(std::span<Array* const> state) {
  const int behind = group_.rank() + 1;
  if (behind == group_.size()) return;
  const Profile::Scope timed(profile_, "exchange");
  Send(group_, behind, Signal::kState, state);
}

Tensor RowOps::ToHost(const Array& x) {
  Tensor host = inner_->ToHost(x);
  const Profile::Scope timed(profile_, "exchange");
  const std::span<float> values(host.data(), static_cast<size_t>(host.size()));
  const int last = group_.size() - 1;
  if (group_.rank() == 0) {
    Receive(group_, last, std::as_writable_bytes(values));
  } else if (group_.rank() == last) {
    const Group::Outgoing outgoing{0, std::as_bytes(values)};
    group_.Exchange({&outgoing, 1}, {});
  }
  return host;
}

void TellToStop(const Group& group) { Send(group, 1, Signal::kStop, {}); }

}  // namespace qwen_image::split
