// The same picture in both precisions, compared block by block.
#pragma once

#include "prove/proof.h"

namespace qwen_image::prove {

// Fills in the part of the report. `fast` is the loaded model; it is opened once more for `exact`.
void ComparePrecisions(const ModelFiles& model, const Pipeline& fast, const Options& options,
                       const Watch& watch, Json& part);

}  // namespace qwen_image::prove
