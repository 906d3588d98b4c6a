// The engine against a run of the official pipeline that tools/reference/export.py recorded.
#pragma once

#include "prove/proof.h"

namespace qwen_image::prove {

// Fills in the part of the report. Nothing of the run's settings but its size and steps gets into it: the
// prompt may be a user's. Throws Error kBadInput for a folder that is no run.
void CompareWithReference(const ModelFiles& model, const Options& options, const Watch& watch, Json& part);

}  // namespace qwen_image::prove
