// What several machines are worth: how fast each computes, what the network between them costs, and how long
// a step would take in each way of splitting it.
#pragma once

#include <string>
#include <vector>

#include "families/model.h"
#include "machines/session.h"

namespace qwen_image::team {

struct Network {
  double latency = 0;           // seconds until another machine has a byte
  double bytes_per_second = 0;  // that a machine sends while all send to all
};

// One pass of the denoiser for a picture.
struct PassCost {
  std::vector<double> seconds;   // of each machine, if it computed alone
  double blocks = 0, state = 0;  // Denoiser::Work
};

struct StepCost {
  double alone = 0, sequence = 0, layers = 0;  // seconds; alone: on the first machine
};

// How long a step takes, with guidance or without. Shares are even, so the slowest machine decides.
StepCost Predict(const PassCost& pass, const Network& network, int machines, bool guided);

// On the first machine, of whose session `model` is (team_model.h); the others measure at the same time.
Network MeasureNetwork(const machines::Session& session);
std::vector<PassCost> MeasurePasses(const Model& model, const machines::Session& session,
                                    const std::vector<TokenGrid>& grids, ThreadPool& pool);

// The part of the others.
void TakePartInNetwork(const machines::Session& session);
void TakePartInPasses(const Model& model, const machines::Session& session,
                      std::span<const std::byte> message, ThreadPool& pool);

}  // namespace qwen_image::team
