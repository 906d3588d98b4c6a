#include "families/qwen_image/denoiser.h"

#include <utility>

#include "families/qwen_image/guidance.h"
#include "families/qwen_image/transformer_pass.h"
#include "model/token_latents.h"

namespace qwen_image {
namespace {

class Pass final : public DenoiserPass {
 public:
  Pass(const Transformer& transformer, Conditions conditions, const Compute& compute)
      : pass_(transformer, compute), conditions_(std::move(conditions)) {
    pictures_.push_back(conditions_.drawn);
    pictures_.insert(pictures_.end(), conditions_.reference_grids.begin(), conditions_.reference_grids.end());
  }

  std::vector<Tensor> Predict(const Tensor& latents, float timestep, std::span<const Tap> taps) override {
    std::vector<Transformer::Prompt> prompts;
    for (size_t i = 0; i < conditions_.prompts.size(); ++i)
      prompts.push_back({*conditions_.prompts[i].embeds, taps[i]});
    Tensor joined;
    if (conditions_.references) joined = JoinPacked(latents, *conditions_.references);
    return pass_.PredictVelocities(joined.size() > 0 ? joined : latents, prompts, timestep, pictures_);
  }

 private:
  TransformerPass pass_;
  Conditions conditions_;
  std::vector<TokenGrid> pictures_;  // the one that is drawn first
};

}  // namespace

std::unique_ptr<DenoiserPass> QwenImageDenoiser::Start(Conditions conditions, const Compute& compute) const {
  return std::make_unique<Pass>(transformer_, std::move(conditions), compute);
}

void QwenImageDenoiser::Guide(const Tensor& negative, float scale, Tensor& positive) const {
  ApplyTrueCfg(negative, scale, positive);
}

// The largest matrix of a block.
Linear QwenImageDenoiser::TypicalLayer() const {
  Linear layer;
  layer.weight = transformer_.store().Find("transformer_blocks.0.img_mlp.net.0.proj.weight")->Matrix();
  if (precision_ == Precision::kFast) layer.int8_group = Int8GroupOf(layer.weight);
  return layer;
}

Denoiser::Work QwenImageDenoiser::WorkOf(TokenGrid grid, int64_t prompt_tokens) const {
  const TransformerConfig& config = transformer_.config();
  const auto layers = static_cast<double>(config.num_layers);
  const auto tokens = static_cast<double>(grid.tokens() + prompt_tokens);
  const auto width = static_cast<double>(config.inner_dim());
  // A token passes q, k, v, out and an MLP of four times the width: 12 squares; attention looks twice at all.
  return {.linear = layers * 2 * tokens * 12 * width * width,
          .attention = layers * 4 * tokens * tokens * width,
          .blocks = layers,
          .state = tokens * width};
}

}  // namespace qwen_image
