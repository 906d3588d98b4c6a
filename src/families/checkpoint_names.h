// The names of a family's checkpoints, and what is known of the tensors behind them.
//
// A checkpoint is "<component>[.neg]/<step>/<module>": the component and the step are this engine's words,
// the module is the family's. What no module returns has a ':' before its own name. Where a family has no
// such tensor, its name is empty here, and nothing is asked about it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "families/computing_order.h"

namespace qwen_image {

// Words of the engine, the same for every family's attention.
inline constexpr std::string_view kAttentionOutput = ":attn_output", kAttentionWeights = ":attn_weights",
                                  kAttentionEntropy = ":attn_entropy";

struct ValueRange {
  double min = 0, max = 0;
};

// The modules of a component whose outputs the level "blocks" records; '#' stands for a number.
struct ComponentBlocks {
  std::string_view component;  // also of longer names that begin with it
  std::span<const std::string_view> modules;
};

struct MatrixRole {
  std::string_view module, role;  // "attn.to_q" in its block is "img q"
};

// A stream of tokens in the denoiser's blocks. All but the input follow the block's name: ".img_mlp", ":img".
struct StreamNames {
  std::string_view input;                  // what enters the first block
  std::optional<std::string_view> output;  // of the block; "" where the block's module returns it
  // For the attention and for the MLP: x, and x · (1 + scale) + shift.
  std::array<std::string_view, 2> norm, modulated;
  std::string_view modulation;  // [shift, scale, gate] of the attention, then of the MLP
  std::string_view attention_residual, mlp;
  std::string_view query_norm, key_norm, value, attention_out;
  std::string_view query_rope, key_rope;
};

// A denoiser whose one stream is [prompt with the given pictures in it, picture that is drawn]. All but the
// last is the prefix: it is modulated for t = 0. A token sees all before it and, in a picture, that picture.
struct OneStreamNames {
  std::string_view pictures;  // the embedded latents of all pictures; the one that is drawn is the last
  // For all blocks [scale, gate] of the attention, then of the MLP. The first row is the step's, the second
  // is that of t = 0.
  std::string_view modulation;
  // In a block, for each token: the attention's and the MLP's, behind their tanh.
  std::array<std::string_view, 2> gates;
};

// The language model that reads the prompt, and the norm that reads its embeddings.
struct ConditionerNames {
  std::string_view layers;              // one of CheckpointNames::block_lists
  std::string_view deepstack;           // a layer's output with features of the pictures added
  std::string_view features;            // the modules that make these; a number follows
  std::string_view rope_cos, rope_sin;  // [1, tokens, head_dim]; frequencies take turns among three axes
  bool embeds_before_norm = false;      // the embeddings are what the model's final norm would read
  std::string_view norm_from_zero;      // RMSNorm of the embeddings, whose stored weight is its scale − 1
};

// A part of a run that is judged as a whole when two devices are compared.
struct StageNames {
  std::string_view title;                      // for people
  std::string_view component;                  // whose modules it has …
  std::span<const std::string_view> prefixes;  // … that begin so; empty: all others of the component
  bool rounds = false;                         // fast precision rounds its activations
};

struct CheckpointNames {
  std::span<const ComponentBlocks> blocks;
  std::span<const std::string_view> block_lists;  // modules that hold numbered blocks
  std::span<const MatrixRole> matrices;
  std::span<const StageNames> stages;            // in the order of a run
  std::span<const std::string_view> weightless;  // ends of modules' names that have no weights
  std::string_view
      picture_convolution;  // the autoencoder's first, which may read its channels from another axis
  const std::vector<ComponentOrder>& (*order)() = nullptr;  // null: names tell no order

  // The denoiser.
  std::string_view denoiser_blocks;      // one of block_lists
  std::span<const StreamNames> streams;  // in the order of the joint sequence
  std::optional<OneStreamNames> one_stream;
  std::optional<std::string_view> block_end;  // the first output of a block; "" as StreamNames::output
  std::string_view before_attention;  // the last checkpoint of a block before its attention is computed
  // The norm before the velocity: x · (1 + scale) + shift of "<name>.norm", where "<name>.linear" is
  // [scale, shift]. Of one stream: x · (1 + scale), and a row for the step and for t = 0.
  std::string_view head_norm;
  std::string_view velocity;
  bool rescales_guidance = false;    // guided tokens get back the norm of the prompt's own prediction
  std::string_view time_projection;  // sines of large angles, which round

  ConditionerNames conditioner;

  // Which values are normal in the model of the published size; empty where that is not known.
  std::optional<ValueRange> (*known_range)(std::string_view checkpoint) = nullptr;
  std::string_view example;  // a pattern to show to users
};

// Whether the text is the pattern with a number for each '#'.
bool MatchesNumbered(std::string_view pattern, std::string_view text);

bool IsBlock(const CheckpointNames& names, std::string_view component, std::string_view module);

// "transformer/step003.neg/img_in" → "img_in"
std::string_view ModuleOf(std::string_view checkpoint);
// Whether a checkpoint's ending is this name; never for a name that the family does not have.
inline bool IsNamed(std::string_view ending, std::string_view name) {
  return !name.empty() && ending == name;
}
// The same for an output of a block, whose name may be that of the block.
inline bool IsOutput(std::string_view ending, const std::optional<std::string_view>& name) {
  return name && ending == *name;
}

// "transformer/step000/transformer_blocks.7:img_query_rope"
struct BlockName {
  std::string pass;    // "transformer/step000/"
  std::string list;    // "transformer_blocks"
  int64_t index = 0;   // 7
  std::string prefix;  // "transformer/step000/transformer_blocks.7"
  std::string rest;    // ":img_query_rope"
};
// Of a checkpoint in one of the family's lists of blocks; nothing outside of them.
std::optional<BlockName> ParseBlockName(const CheckpointNames& names, std::string_view checkpoint);

// What a matrix is for; empty for all else. `module`: inside its block, or the whole name outside of blocks.
std::string_view MatrixRoleOf(const CheckpointNames& names, std::string_view module);

// The names of the family that knows most of these checkpoints; of the first one if none knows any.
const CheckpointNames& NamesFor(std::span<const std::string> checkpoints);

}  // namespace qwen_image
