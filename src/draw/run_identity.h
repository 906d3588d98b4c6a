// What decides the result of a run: engine, weights, token ids, settings, noise levels.
#pragma once

#include <string>

#include "draw/settings.h"
#include "keep/identity.h"

namespace qwen_image::draw {

// Everything that decides the latents of a run, as JSON. The VAE that decodes them is not in it: another one
// decodes the same latents.
std::string RunIdentity(keep::Identities& identities, const GenerateRequest& request,
                        const Settings& settings, const Schedule& schedule);

// A hash of all that decides the picture (Pipeline::RunId).
std::string RunId(keep::Identities& identities, const GenerateRequest& request);

}  // namespace qwen_image::draw
