// Attribution: which blocks and which matrices make the error between two precisions of one model.
//
// Two kinds of runs tell different things. A run that computes everything itself has accumulated errors. A
// run that continues from the reference's tensors after each checkpoint (--substitute '*') has isolated
// errors: each operation adds only the error of its own weights ("weights-only"). The difference of the two
// energies came in with the activations.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "families/checkpoint_names.h"
#include "parity/compare/result.h"

namespace qwen_image::compare {

// Where a checkpoint belongs: "transformer/step003/transformer_blocks.7.attn.to_q" is the matrix "img q" of
// block 7.
struct CheckpointRole {
  std::string component;  // "transformer"
  std::string blocks;     // "transformer_blocks"; empty outside of blocks
  int64_t block = -1;
  std::string module;  // inside the block: "attn.to_q"; else the whole name: "img_in"
  std::string role;    // "img q", "txt FFN down", …; "norm" and "other" have no matrix
  bool is_matrix = false;
};
CheckpointRole RoleOf(const CheckpointNames& names, std::string_view checkpoint);

// Mean NMSE, weighted by the elements of the tensors.
struct AttributedError {
  std::string component, what;  // a role, or "block 7"
  int64_t tensors = 0;
  std::optional<double> accumulated, weights_only, carried;  // carried: by the activations
};

// Which matrices to keep at 8 bits: those with the most weights-only error, until half of it is covered. A
// share is the most that a finer type can remove. From 4 to 8 bits the energy of an error falls 256-fold.
struct MixedRecipe {
  struct Keep {
    std::string globs;  // of weights, with commas between
    double share = 0;   // of the weights-only error of all matrices
  };
  std::vector<Keep> keeps;  // largest share first
  double share = 0;         // of all together
  std::string advice;       // why there is no recipe
};

struct Attribution {
  std::vector<AttributedError> by_role, by_block;
  MixedRecipe recipe;
  int64_t left_out = 0;  // tensors with NaN or without a counterpart
};

// Either may be null. The recipe needs `isolated`.
Attribution Attribute(const Comparison* accumulated, const Comparison* isolated);

// True if the run took over every tensor of the reference: its errors are isolated.
bool IsIsolatedRun(const Json& manifest);

std::string AttributionText(const Attribution& attribution);
Json AttributionJson(const Attribution& attribution);

}  // namespace qwen_image::compare
