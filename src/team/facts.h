// What must be the same on all machines.
#pragma once

#include "families/model.h"
#include "team/calls.h"

namespace qwen_image::team {

// This machine's build, kernels and weights.
Report Examine(const Model& model);
// In words; empty if there is none.
std::string DifferenceOf(const Report& first, const Report& other);

// Bytes that are available on the machine that has least. All machines ask at once.
int64_t LeastMemory(const machines::Session& session);

// That this machine computes with unless told otherwise: several of them may be on one host.
int ThreadsHere(const machines::Session& session);

// All machines use the best kernels that every one of them has.
void AgreeOnKernels(const machines::Session& session);

}  // namespace qwen_image::team
