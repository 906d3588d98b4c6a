// The first machine's model: its denoiser computes with all machines. The rest is its own.
#pragma once

#include <memory>

#include "families/model.h"
#include "machines/session.h"
#include "team/calls.h"

namespace qwen_image::team {

// Tells all machines to open the same model, and waits until they have. Throws Error kMachine if one of them
// cannot, or if theirs differs: it names the machine and what differs.
std::unique_ptr<const Model> ShareModel(std::unique_ptr<const Model> model, const ModelCall& call,
                                        const machines::Session& session);

}  // namespace qwen_image::team
