#include "team/measure.h"

#include <algorithm>
#include <chrono>

#include "families/step_estimate.h"
#include "team/calls.h"

namespace qwen_image::team {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A byte goes to every other machine and back.
double SecondsOfRound(const machines::Session& session) {
  std::byte byte{};
  const auto start = Clock::now();
  session.all().Broadcast(0, {&byte, 1});
  std::vector<std::byte> bytes(static_cast<size_t>(session.size()));
  std::vector<std::span<std::byte>> parts;
  for (std::byte& one : bytes) parts.emplace_back(&one, 1);
  session.all().Share(parts);
  return SecondsSince(start);
}

// All send to all; the slowest way counts.
double SecondsOfExchange(const machines::Session& session, size_t bytes) {
  std::vector<std::vector<std::byte>> memory(static_cast<size_t>(session.size()),
                                             std::vector<std::byte>(bytes));
  std::vector<std::span<std::byte>> parts(memory.begin(), memory.end());
  const auto start = Clock::now();
  session.all().Share(parts);
  return SecondsSince(start);
}

Network Measure(const machines::Session& session) {
  constexpr int kRounds = 20;
  constexpr size_t kFirst = size_t{1} << 18, kMost = size_t{1} << 24;
  std::vector<double> rounds;
  for (int i = 0; i < kRounds; ++i) rounds.push_back(SecondsOfRound(session));
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  Network network{.latency = rounds[kRounds / 2] / 2};
  // Larger and larger, until it takes long enough to be told from the latency. The first machine decides.
  for (size_t bytes = kFirst; bytes <= kMost; bytes *= 4) {
    const double seconds = SecondsOfExchange(session, bytes);
    network.bytes_per_second = static_cast<double>(bytes) * (session.size() - 1) / seconds;
    bool enough = seconds > 0.3;
    session.all().Broadcast(0, std::as_writable_bytes(std::span(&enough, 1)));
    if (enough) break;
  }
  return network;
}

std::vector<double> SecondsOf(const Model& model, const std::vector<TokenGrid>& grids, ThreadPool& pool) {
  const StepEstimate estimate(model.denoiser(), pool);
  std::vector<double> seconds;
  for (const TokenGrid& grid : grids) seconds.push_back(estimate.Seconds(grid));
  return seconds;
}

}  // namespace

StepCost Predict(const PassCost& pass, const Network& network, int machines, bool guided) {
  const double slowest = *std::max_element(pass.seconds.begin(), pass.seconds.end());
  const double prompts = guided ? 2 : 1;
  StepCost cost{.alone = prompts * pass.seconds.front()};

  const bool halves = guided && machines % 2 == 0;
  const double group = halves ? machines / 2 : machines;
  const double passes = halves ? 1 : prompts;  // that a group computes one after the other
  // Of q, k, v and the result a machine sends what is not its own, twice a block.
  const double sent = 4 * sizeof(float) * pass.state / group * (group - 1) / group;
  const double exchange =
      group > 1 ? pass.blocks * (sent / network.bytes_per_second + 2 * network.latency) : 0;
  cost.sequence = passes * (slowest / group + exchange);

  // A prompt passes all machines; the second one follows it.
  const double hand_over = sizeof(float) * pass.state / network.bytes_per_second + network.latency;
  cost.layers = (machines + prompts - 1) * slowest / machines + (machines - 1) * hand_over;
  return cost;
}

Network MeasureNetwork(const machines::Session& session) {
  Tell(session, Call::kNetwork);
  return Measure(session);
}

void TakePartInNetwork(const machines::Session& session) { Measure(session); }

std::vector<PassCost> MeasurePasses(const Model& model, const machines::Session& session,
                                    const std::vector<TokenGrid>& grids, ThreadPool& pool) {
  Writer message;
  message.PutAll(std::span<const TokenGrid>(grids));
  Tell(session, Call::kSpeed, message);
  const std::vector<double> own = SecondsOf(model, grids, pool);
  const StepEstimate estimate(model.denoiser(), pool);
  std::vector<PassCost> passes(grids.size());
  for (size_t i = 0; i < grids.size(); ++i) {
    const Denoiser::Work work = estimate.WorkOf(grids[i]);
    passes[i].blocks = work.blocks;
    passes[i].state = work.state;
  }
  for (const auto& bytes : ShareAll(session, std::as_bytes(std::span(own))))
    for (PassCost& pass : passes) {
      const auto grid = static_cast<size_t>(&pass - passes.data());
      double seconds = 0;
      std::memcpy(&seconds, bytes.data() + grid * sizeof(double), sizeof(double));
      pass.seconds.push_back(seconds);
    }
  return passes;
}

void TakePartInPasses(const Model& model, const machines::Session& session,
                      std::span<const std::byte> message, ThreadPool& pool) {
  const std::vector<double> own = SecondsOf(model, Reader(message).GetAll<TokenGrid>(), pool);
  ShareAll(session, std::as_bytes(std::span(own)));
}

}  // namespace qwen_image::team
