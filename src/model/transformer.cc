// Weights, embeddings and the way through the blocks.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/transformer_impl.h"

namespace qwen_image {
namespace {

constexpr int64_t kTimeChannels = 256;  // width of the sinusoidal timestep embedding
constexpr float kRopeTheta = 10000.0f;

}  // namespace

Transformer::Transformer(WeightStore store, LoraSet loras, Precision precision)
    : config_(ReadTransformerConfig(store)), store_(std::move(store)), loras_(std::move(loras)) {
  Bind(precision);
}

Transformer::Transformer(Transformer&&) noexcept = default;
Transformer::~Transformer() = default;

void Transformer::ReleasePages() const {
  scratch_.reset();
  store_.ReleasePages();
  loras_.ReleasePages();
}

void Transformer::ThrowIfDamaged() const {
  store_.ThrowIfDamaged();
  loras_.ThrowIfDamaged();
}

Transformer::Stream Transformer::BindStream(WeightBinder& binder, const std::string& block,
                                            const StreamNames& names, Precision precision) const {
  const int64_t dim = config_.inner_dim(), head_dim = config_.attention_head_dim;
  const auto linear = [&](const char* name, int64_t out, int64_t in) {
    return BindLinear(binder, block + name, out, in, Bias::kYes, precision);
  };
  Linear mod = linear(names.mod, 6 * dim, dim);
  // One row for all tokens: an error here is the same for the whole picture, and the time is that of reading
  // the weights anyway.
  mod.fineness = Int8Fineness::kEverywhere;
  return {
      .names = &names,
      .mod = std::move(mod),
      .to_q = linear(names.to_q, dim, dim),
      .to_k = linear(names.to_k, dim, dim),
      .to_v = linear(names.to_v, dim, dim),
      .to_out = linear(names.to_out, dim, dim),
      .norm_q = binder.Floats(block + names.norm_q + ".weight", {head_dim}),
      .norm_k = binder.Floats(block + names.norm_k + ".weight", {head_dim}),
      .mlp = {.proj = linear(names.mlp_proj, 4 * dim, dim), .out = linear(names.mlp_out, dim, 4 * dim)},
  };
}

// The layers at both ends stay exact: they are small, and everything passes through them.
void Transformer::Bind(Precision precision) {
  const int64_t dim = config_.inner_dim();
  WeightBinder binder(store_, &loras_);
  img_in_ = BindLinear(binder, "img_in", dim, config_.in_channels);
  txt_norm_ = binder.Floats("txt_norm.weight", {config_.joint_attention_dim});
  txt_in_ = BindLinear(binder, "txt_in", dim, config_.joint_attention_dim);
  time_linear_1_ = BindLinear(binder, "time_text_embed.timestep_embedder.linear_1", dim, kTimeChannels);
  time_linear_2_ = BindLinear(binder, "time_text_embed.timestep_embedder.linear_2", dim, dim);
  for (int64_t i = 0; i < config_.num_layers; ++i) {
    const std::string block = fmt::format("transformer_blocks.{}", i);
    transformer_blocks_.push_back({BindStream(binder, block, StreamNames::kImg, precision),
                                   BindStream(binder, block, StreamNames::kTxt, precision)});
    transformer_blocks_.back().can_fuse = CanFuse(transformer_blocks_.back());
  }
  norm_out_linear_ = BindLinear(binder, "norm_out.linear", 2 * dim, dim);
  proj_out_ =
      BindLinear(binder, "proj_out", config_.patch_size * config_.patch_size * config_.out_channels, dim);
  binder.Finish();
}

// Positions are centred: a picture's row y has the position y − ⌈height / 2⌉, and the n-th picture the frame
// n. The text continues on the diagonal, from the first position that no picture token uses.
Transformer::RopeTable Transformer::MakeRope(int64_t text_tokens, std::span<const TokenGrid> pictures) const {
  const int64_t half = config_.attention_head_dim / 2;
  int64_t tokens = text_tokens, text_start = 0;
  for (const TokenGrid& grid : pictures) {
    tokens += grid.tokens();
    text_start = std::max({text_start, grid.height / 2, grid.width / 2});
  }
  RopeTable rope{Tensor({tokens, half}), Tensor({tokens, half})};

  // An axis's share of the row of `token`; it begins after the shares of the axes before it.
  const auto fill = [&](int64_t token, size_t axis, int64_t begin, int64_t position) {
    const int64_t width = config_.axes_dims_rope[axis];
    for (int64_t i = 0; i < width; i += 2) {
      const float freq = 1.0f / std::pow(kRopeTheta, static_cast<float>(i) / static_cast<float>(width));
      const float angle = static_cast<float>(position) * freq;
      rope.cos.row(token)[begin + i / 2] = std::cos(angle);
      rope.sin.row(token)[begin + i / 2] = std::sin(angle);
    }
  };
  const auto copy = [&](int64_t from, int64_t to, int64_t begin, int64_t count) {
    std::copy_n(rope.cos.row(from) + begin, count, rope.cos.row(to) + begin);
    std::copy_n(rope.sin.row(from) + begin, count, rope.sin.row(to) + begin);
  };
  const auto& axes = config_.axes_dims_rope;
  const int64_t height_begin = axes[0] / 2, width_begin = (axes[0] + axes[1]) / 2;

  for (int64_t t = 0; t < text_tokens; ++t) {
    fill(t, 0, 0, text_start + t);
    fill(t, 1, height_begin, text_start + t);
    fill(t, 2, width_begin, text_start + t);
  }
  // A row's height and a column's width are the same for all its tokens, and all of a picture its frame.
  int64_t picture_begin = text_tokens;
  for (size_t frame = 0; frame < pictures.size(); ++frame) {
    const TokenGrid& grid = pictures[frame];
    const int64_t top = grid.height - grid.height / 2, left = grid.width - grid.width / 2;
    for (int64_t y = 0; y < grid.height; ++y) {
      const int64_t first = picture_begin + y * grid.width;
      if (y == 0) fill(first, 0, 0, static_cast<int64_t>(frame));
      fill(first, 1, height_begin, y - top);
      for (int64_t x = 0; x < grid.width; ++x) {
        if (y == 0) fill(first + x, 2, width_begin, x - left);
        copy(picture_begin, first + x, 0, height_begin);
        copy(first, first + x, height_begin, width_begin - height_begin);
        copy(picture_begin + x, first + x, width_begin, half - width_begin);
      }
    }
    picture_begin += grid.tokens();
  }
  return rope;
}

// [1, inner_dim]; with zero_cond_t [2, inner_dim]: the second row is for t = 0, which references have.
Tensor Transformer::EmbedTimestep(float timestep, ThreadPool& pool, const Tap& tap) const {
  constexpr int64_t kHalf = kTimeChannels / 2;
  const int64_t rows = config_.zero_cond_t ? 2 : 1;
  Tensor time_proj({rows, kTimeChannels});
  for (int64_t row = 0; row < rows; ++row) {
    const float t = row == 0 ? timestep : 0.0f;
    for (int64_t i = 0; i < kHalf; ++i) {
      const float exponent =
          static_cast<float>(-std::log(10000.0)) * static_cast<float>(i) / static_cast<float>(kHalf);
      const float angle = 1000.0f * (t * std::exp(exponent));
      time_proj.row(row)[i] = std::cos(angle);
      time_proj.row(row)[kHalf + i] = std::sin(angle);
    }
  }
  tap("time_text_embed.time_proj", time_proj);

  Tensor hidden({rows, config_.inner_dim()}), temb({rows, config_.inner_dim()});
  time_linear_1_(time_proj.data(), rows, hidden.data(), pool);
  tap("time_text_embed.timestep_embedder.linear_1", hidden);
  Silu(hidden.data(), hidden.size(), hidden.data(), pool);
  time_linear_2_(hidden.data(), rows, temb.data(), pool);
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
                    .rope = MakeRope(txt_tokens, pictures),
                    .tap = prompt.tap};
  img_in_(latents.data(), img_tokens, sequence.img.data(), pool);
  prompt.tap("img_in", sequence.img);

  Tensor txt_normed(prompt.embeds.shape());
  RmsNorm(prompt.embeds.data(), txt_tokens, config_.joint_attention_dim, txt_norm_.data(), kTransformerEps,
          txt_normed.data(), pool);
  prompt.tap("txt_norm", txt_normed);
  txt_in_(txt_normed.data(), txt_tokens, sequence.txt.data(), pool);
  prompt.tap("txt_in", sequence.txt);

  Tensor temb = EmbedTimestep(timestep, pool, prompt.tap);
  Silu(temb.data(), temb.size(), temb.data(), pool);  // every use of it starts with one
  sequence.silu_temb = std::move(temb);
  return sequence;
}

// Of the references nothing is wanted; but who listens is shown what the official model computes.
Tensor Transformer::ProjectOut(Sequence& sequence, ThreadPool& pool) const {
  const int64_t dim = config_.inner_dim(), out = proj_out_.weight.rows;
  Tensor& img = sequence.img;
  const Tap& tap = sequence.tap;
  const int64_t tokens = tap ? img.dim(1) : sequence.drawn_tokens;
  Tensor norm_out_mod({1, 2 * dim});  // here the order is [scale, shift]
  norm_out_linear_(sequence.silu_temb.data(), 1, norm_out_mod.data(), pool);
  tap("norm_out.linear", norm_out_mod);
  LayerNorm(img.data(), tokens, dim, kTransformerEps, img.data(), pool);
  tap("norm_out.norm", img);
  Modulate(img.data(), tokens, dim, norm_out_mod.data(), norm_out_mod.data() + dim, img.data(), pool);
  tap("norm_out", img);

  Tensor velocity({1, tokens, out});
  proj_out_(img.data(), tokens, velocity.data(), pool);
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
  ThreadPool& pool = compute.pool;
  std::vector<Sequence> sequences;
  int64_t txt_tokens = 0;
  for (const Prompt& prompt : prompts) {
    sequences.push_back(Embed(latents, prompt, timestep, pictures, pool));
    txt_tokens = std::max(txt_tokens, prompt.embeds.dim(1));
  }

  Scratch& scratch = ScratchFor(latents.dim(1), txt_tokens);
  for (size_t i = 0; i < transformer_blocks_.size(); ++i) {
    const Block& block = transformer_blocks_[i];
    for (size_t j = 0; j < sequences.size(); ++j) {
      compute.Continue(i * sequences.size() + j, transformer_blocks_.size() * sequences.size());
      Sequence& sequence = sequences[j];
      const Tap tap = sequence.tap.Under("transformer_blocks.", static_cast<int64_t>(i), "");
      if (j == 0 || tap) {  // the timestep is the same for all, but a listener may change it for one
        const float* silu_temb = sequence.silu_temb.data();
        block.img.mod(silu_temb, scratch.img_mod.dim(0), scratch.img_mod.data(), pool);
        block.txt.mod(silu_temb, 1, scratch.txt_mod.data(), pool);
      }
      if (block.can_fuse && !tap) {
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
