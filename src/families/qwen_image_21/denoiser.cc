#include "families/qwen_image_21/denoiser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "families/qwen_image_21/transformer_pass.h"

namespace qwen_image::qwen_image_21 {
namespace {

class Pass final : public DenoiserPass {
 public:
  Pass(const Transformer& transformer, std::vector<TransformerPass::Prompt> prompts, const Tensor* references,
       std::optional<Keeping> keeping, const Compute& compute)
      : pass_(transformer, std::move(prompts), references, keeping, compute) {}

  std::vector<Tensor> Predict(const Tensor& latents, float timestep, std::span<const Tap> taps) override {
    return pass_.PredictVelocities(latents, timestep, taps);
  }

 private:
  TransformerPass pass_;
};

}  // namespace

int64_t PrefixCacheBytes(const TransformerConfig& config, Keeping keeping) {
  const int64_t number = keeping == Keeping::kFloat32 ? 4 : 2;
  return 2 * config.num_layers * config.inner_dim() * number;
}

// In rows of inner_dim: for a token of the joint sequence its hidden state (1), key and value (2) and both as
// they are packed (2); for one that passes a block also the query, the attention's output, the input of a
// layer and that in 8 bits (4); and the MLP's hidden layer of a band of rows, twice and once in 8 bits.
int64_t TransformerWorkspace(const TransformerConfig& config, int64_t prefix, int64_t target) {
  constexpr int64_t kBandRows = 2304;
  const int64_t tokens = prefix + target;
  const int64_t rows = 9 * tokens + std::min(tokens, kBandRows) * config.mlp_ratio * 9 / 4;
  return rows * config.inner_dim() * static_cast<int64_t>(sizeof(float));
}

// As it is if there is room. Fast precision rather rounds it than computes the prefix at every step.
std::optional<Keeping> QwenImage21Denoiser::ChooseKeeping(int64_t prefix, int64_t workspace,
                                                          const Conditions& conditions) const {
  const TransformerConfig& config = transformer_.config();
  const int64_t available = conditions.available_memory ? *conditions.available_memory : available_();
  const int64_t left = available - transformer_.total_bytes() - workspace;
  const auto fits = [&](Keeping keeping) { return prefix * PrefixCacheBytes(config, keeping) <= left; };
  if (fits(Keeping::kFloat32)) return Keeping::kFloat32;
  const double gigabytes = static_cast<double>(prefix * PrefixCacheBytes(config, Keeping::kFloat32)) / 1e9;
  const auto note = [&](const std::string& what) {
    if (conditions.on_note)
      conditions.on_note(fmt::format(
          "the keys and values of the prompt and its pictures ({:.1f} GB) do not fit in memory: {}",
          gigabytes, what));
  };
  if (precision_ == Precision::kFast && fits(Keeping::kBfloat16)) {
    note("they are kept in bfloat16, which changed the velocities of a small model by 2e-7 (NMSE)");
    return Keeping::kBfloat16;
  }
  note("they are computed again at every step, which takes longer");
  return std::nullopt;
}

std::unique_ptr<DenoiserPass> QwenImage21Denoiser::Start(Conditions conditions,
                                                         const Compute& compute) const {
  std::vector<TransformerPass::Prompt> prompts;
  int64_t prefix = 0, workspace = 0;
  for (const Conditions::Prompt& prompt : conditions.prompts) {
    const JointSequence sequence =
        LayOut(prompt.embeds->dim(1), prompt.ids, image_token_, conditions.reference_grids, conditions.drawn);
    prefix += sequence.prefix();
    workspace = std::max(
        workspace, TransformerWorkspace(transformer_.config(), sequence.prefix(), conditions.drawn.tokens()));
    prompts.push_back({prompt.embeds, sequence});
  }
  return std::make_unique<Pass>(transformer_, std::move(prompts), conditions.references,
                                ChooseKeeping(prefix, workspace, conditions), compute);
}

// Plain: without the older family's rescaling.
void QwenImage21Denoiser::Guide(const Tensor& negative, float scale, Tensor& positive) const {
  for (int64_t i = 0; i < positive.size(); ++i)
    positive[i] = negative[i] + scale * (positive[i] - negative[i]);
}

// The largest matrix of a block.
Linear QwenImage21Denoiser::TypicalLayer() const {
  return transformer_.weights().transformer_blocks.front().proj;
}

// Of a step behind the first, which has the prefix's keys and values.
Denoiser::Work QwenImage21Denoiser::WorkOf(TokenGrid grid, int64_t prompt_tokens) const {
  const TransformerConfig& config = transformer_.config();
  const auto layers = static_cast<double>(config.num_layers), width = static_cast<double>(config.inner_dim());
  const auto target = static_cast<double>(grid.tokens()), prefix = static_cast<double>(prompt_tokens);
  // q, k, v, out: 4 squares; the MLP: three of mlp_ratio.
  const double squares = 4 + 3 * static_cast<double>(config.mlp_ratio);
  return {.linear = layers * 2 * target * squares * width * width,
          .attention = layers * 4 * target * (target + prefix) * width,
          .blocks = layers,
          .state = target * width};
}

}  // namespace qwen_image::qwen_image_21
