// Two comparisons of the same two runs as tables: what each transformer block adds to the error by itself,
// and what has gathered there.
#pragma once

#include "families/checkpoint_names.h"
#include "files/json.h"
#include "parity/compare/result.h"

namespace qwen_image::prove {

struct Comparisons {
  compare::Comparison isolated;     // every tensor computed from the reference's inputs
  compare::Comparison accumulated;  // the run computed everything itself
};

// For each block and stream the worst NMSE over all steps, and what values the reference has there: min, max,
// rms, and how many NaN and infinities either side has. `known`: of the model's size; may be null.
Json BlockTable(const CheckpointNames& names, const Comparisons& comparisons,
                std::optional<ValueRange> (*known)(std::string_view checkpoint));

// NMSE of the velocity at each step.
Json StepTable(const compare::Comparison& accumulated);

// How many tensors there are, how many are not within their limits, and the worst of them: of the isolated
// ones, or of all that are broken.
Json Verdict(const compare::Comparison& comparison);

// Every value of the run is the reference's.
bool Identical(const compare::Comparison& comparison);

// Tensors with NaN or infinities on either side: "transformer/step000/transformer_blocks.3:img"; empty: none.
std::string FirstBroken(const compare::Comparison& comparison);

}  // namespace qwen_image::prove
