// Embeddings and the way through the blocks.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "families/qwen_image/transformer_impl.h"

namespace qwen_image {
Transformer::Transformer(WeightStore store, LoraSet loras, Precision precision)
    : config_(ReadTransformerConfig(store)),
      store_(std::move(store)),
      loras_(std::move(loras)),
      weights_(config_, store_, loras_, precision) {}

Transformer::Transformer(Transformer&&) noexcept = default;
Transformer::~Transformer() = default;

void Transformer::ReleasePages() const {
  scratch_.reset();
  if (twin_) twin_->Release();
  store_.ReleasePages();
  loras_.ReleasePages();
}

void Transformer::ThrowIfDamaged() const {
  store_.ThrowIfDamaged();
  loras_.ThrowIfDamaged();
}

// [1, inner_dim]; with zero_cond_t [2, inner_dim]: the second row is for t = 0, which references have.
Tensor Transformer::EmbedTimestep(float timestep, ThreadPool& pool, const Tap& tap) const {
  Tensor time_proj = TimeProjection(config_, timestep);
  const int64_t rows = time_proj.dim(0);
  tap("time_text_embed.time_proj", time_proj);

  Tensor hidden({rows, config_.inner_dim()}), temb({rows, config_.inner_dim()});
  weights_.time_linear_1(time_proj.data(), rows, hidden.data(), pool);
  tap("time_text_embed.timestep_embedder.linear_1", hidden);
  Silu(ViewOf(hidden), ViewOf(hidden), pool);
  weights_.time_linear_2(hidden.data(), rows, temb.data(), pool);
  tap("time_text_embed.timestep_embedder.linear_2", temb);
  tap("time_text_embed.timestep_embedder", temb);
  tap("time_text_embed", temb);
  return temb;
}

Transformer::Sequence Transformer::Embed(const Tensor& latents, const Prompt& prompt, float timestep,
                                         std::span<const TokenGrid> pictures, ThreadPool& pool) const {
  const int64_t dim = config_.inner_dim(), img_tokens = latents.dim(1), txt_tokens = prompt.embeds.dim(1);
  Sequence sequence{.img = Tensor({1, img_tokens, dim}),
                    .txt = Tensor({1, txt_tokens, dim}),
                    .drawn_tokens = pictures.front().tokens(),
                    .silu_temb = {},
                    .rope = MakeRope(config_, txt_tokens, pictures),
                    .tap = prompt.tap};
  weights_.img_in(latents.data(), img_tokens, sequence.img.data(), pool);
  prompt.tap("img_in", sequence.img);

  Tensor txt_normed(prompt.embeds.shape());
  RmsNorm(ViewOf(prompt.embeds), weights_.txt_norm.data(), kTransformerEps, ViewOf(txt_normed), pool);
  prompt.tap("txt_norm", txt_normed);
  weights_.txt_in(txt_normed.data(), txt_tokens, sequence.txt.data(), pool);
  prompt.tap("txt_in", sequence.txt);

  Tensor temb = EmbedTimestep(timestep, pool, prompt.tap);
  Silu(ViewOf(temb), ViewOf(temb), pool);  // every use of it starts with one
  sequence.silu_temb = std::move(temb);
  return sequence;
}

// Of the references nothing is wanted; but who listens is shown what the official model computes.
Tensor Transformer::ProjectOut(Sequence& sequence, ThreadPool& pool) const {
  const int64_t dim = config_.inner_dim(), out = weights_.proj_out.weight.rows;
  Tensor& img = sequence.img;
  const Tap& tap = sequence.tap;
  const int64_t tokens = tap ? img.dim(1) : sequence.drawn_tokens;
  Tensor norm_out_mod({1, 2 * dim});  // here the order is [scale, shift]
  weights_.norm_out_linear(sequence.silu_temb.data(), 1, norm_out_mod.data(), pool);
  tap("norm_out.linear", norm_out_mod);
  const View rows = ViewOf(img).Rows(0, tokens);
  LayerNorm(rows, kTransformerEps, rows, pool);
  tap("norm_out.norm", img);
  Modulate(rows, norm_out_mod.data(), norm_out_mod.data() + dim, rows, pool);
  tap("norm_out", img);

  Tensor velocity({1, tokens, out});
  weights_.proj_out(img.data(), tokens, velocity.data(), pool);
  tap("proj_out", velocity);
  if (tokens == sequence.drawn_tokens) return velocity;
  Tensor drawn({1, sequence.drawn_tokens, out});
  std::copy_n(velocity.data(), drawn.size(), drawn.data());
  return drawn;
}

Transformer::Scratch& Transformer::ScratchFor(int64_t img_tokens, int64_t txt_tokens) const {
  if (!scratch_ || scratch_->img_tokens != img_tokens || scratch_->txt_tokens != txt_tokens) {
    scratch_.reset();  // give the old memory back first
    scratch_ = std::make_unique<Scratch>(config_, img_tokens, txt_tokens);
  }
  return *scratch_;
}

std::vector<Tensor> Transformer::PredictVelocities(const Tensor& latents, std::span<const Prompt> prompts,
                                                   float timestep, std::span<const TokenGrid> pictures,
                                                   const Compute& compute) const {
  if (twin_) return twin_->PredictVelocities(latents, prompts, timestep, pictures, compute);
  ThreadPool& pool = compute.pool;
  std::vector<Sequence> sequences;
  int64_t txt_tokens = 0;
  for (const Prompt& prompt : prompts) {
    sequences.push_back(Embed(latents, prompt, timestep, pictures, pool));
    txt_tokens = std::max(txt_tokens, prompt.embeds.dim(1));
  }

  Scratch& scratch = ScratchFor(latents.dim(1), txt_tokens);
  for (size_t i = 0; i < weights_.transformer_blocks.size(); ++i) {
    const Block& block = weights_.transformer_blocks[i];
    for (size_t j = 0; j < sequences.size(); ++j) {
      compute.Continue(i * sequences.size() + j, weights_.transformer_blocks.size() * sequences.size());
      Sequence& sequence = sequences[j];
      const Tap tap = sequence.tap.Under("transformer_blocks.", static_cast<int64_t>(i), "");
      if (j == 0 || tap) {  // the timestep is the same for all, but a listener may change it for one
        const float* silu_temb = sequence.silu_temb.data();
        block.img.mod(silu_temb, scratch.img_mod.dim(0), scratch.img_mod.data(), pool);
        block.txt.mod(silu_temb, 1, scratch.txt_mod.data(), pool);
      }
      if (!tap && CanFuse(block)) {
        RunBlockFused(block, sequence, scratch, pool);
      } else {
        RunBlock(block, sequence, scratch, pool, tap);
      }
    }
  }

  std::vector<Tensor> velocities;
  for (Sequence& sequence : sequences) velocities.push_back(ProjectOut(sequence, pool));
  return velocities;
}

}  // namespace qwen_image
