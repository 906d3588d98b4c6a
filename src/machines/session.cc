#include "machines/session.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "core/fail.h"

namespace qwen_image::machines {
namespace {

constexpr size_t kHostBytes = 64;

std::vector<int> AllRanks(const Wire& wire) {
  std::vector<int> ranks(static_cast<size_t>(wire.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::vector<std::string> HostsOf(const Group& all, const std::string& own) {
  std::vector<std::array<char, kHostBytes>> names(static_cast<size_t>(all.size()));
  own.copy(names[static_cast<size_t>(all.rank())].data(), kHostBytes - 1);
  std::vector<std::span<std::byte>> parts;
  for (auto& name : names) parts.push_back(std::as_writable_bytes(std::span(name)));
  all.Share(parts);
  std::vector<std::string> hosts;
  for (auto& name : names) {
    name.back() = 0;
    hosts.emplace_back(name.data());
  }
  return hosts;
}

}  // namespace

Session::Session(std::unique_ptr<Wire> wire, const Launcher& launcher)
    : wire_(std::move(wire)),
      all_(*wire_, AllRanks(*wire_)),
      size_on_host_(std::max(1, launcher.size_on_host)),
      bound_(launcher.bound) {
  hosts_ = HostsOf(all_, wire_->host());
  heartbeat_ = std::make_unique<Heartbeat>(*wire_, [this](int rank) { OnSilence(rank); });
}

Session::~Session() {
  if (failed_) Abort();
  heartbeat_.reset();
}

std::string Session::NameOf(int rank) const {
  return fmt::format("{} (rank {})", hosts_[static_cast<size_t>(rank)], rank);
}

// The thread that computes may be in the middle of something long, or wait for that very machine: this
// message cannot be left to it.
void Session::OnSilence(int rank) {
  const std::string text =
      fmt::format("qwen-image: machine {} has not been heard of for {} seconds; all machines are stopped\n",
                  NameOf(rank), Heartbeat::kMostSilenceSeconds);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  Abort();
}

void Session::Abort() const {
  wire_->Abort(exit_code_);
  std::_Exit(exit_code_);
}

}  // namespace qwen_image::machines
