#include "model/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace qwen_image {
namespace {

constexpr float kEps = 1e-6f;           // of every norm in this model
constexpr int64_t kTimeChannels = 256;  // width of the sinusoidal timestep embedding
constexpr float kRopeTheta = 10000.0f;

// What the attention itself never holds in memory; computed beside it, and only for listeners who ask.
void ShowAttention(const Tensor& query, const Tensor& key, const AttentionShape& shape, ThreadPool& pool,
                   const Tap& tap) {
  constexpr int64_t kSampledQueries = 64;  // enough for a mean over a head
  if (tap.Wants(":attn_weights")) {
    Tensor weights({1, shape.heads, shape.queries, shape.keys});
    AttentionWeights(query.data(), key.data(), shape, weights.data(), pool);
    tap(":attn_weights", weights);
  }
  if (tap.Wants(":attn_entropy")) {
    Tensor entropy({1, shape.heads});
    AttentionEntropy(query.data(), key.data(), shape, kSampledQueries, entropy.data(), pool);
    tap(":attn_entropy", entropy);
  }
}

}  // namespace

// A '.' begins a module of the block, whose weights and checkpoint have this name; a ':' begins a tensor that
// no module returns.
struct Transformer::StreamNames {
  const char *mod, *norm1, *modulated1, *gate1;
  const char *to_q, *to_k, *to_v, *norm_q, *norm_k, *query_rope, *key_rope;
  const char *to_out, *attn_residual;
  const char *norm2, *modulated2, *gate2, *mlp, *mlp_proj, *mlp_gelu, *mlp_out;
  const char* stream;

  static const StreamNames kImg, kTxt;
};

const Transformer::StreamNames Transformer::StreamNames::kImg = {
    .mod = ".img_mod.1",
    .norm1 = ".img_norm1",
    .modulated1 = ":img_modulated1",
    .gate1 = ":img_gate1",
    .to_q = ".attn.to_q",
    .to_k = ".attn.to_k",
    .to_v = ".attn.to_v",
    .norm_q = ".attn.norm_q",
    .norm_k = ".attn.norm_k",
    .query_rope = ":img_query_rope",
    .key_rope = ":img_key_rope",
    .to_out = ".attn.to_out.0",
    .attn_residual = ":img_attn_residual",
    .norm2 = ".img_norm2",
    .modulated2 = ":img_modulated2",
    .gate2 = ":img_gate2",
    .mlp = ".img_mlp",
    .mlp_proj = ".img_mlp.net.0.proj",
    .mlp_gelu = ".img_mlp.net.0",
    .mlp_out = ".img_mlp.net.2",
    .stream = ":img",
};

const Transformer::StreamNames Transformer::StreamNames::kTxt = {
    .mod = ".txt_mod.1",
    .norm1 = ".txt_norm1",
    .modulated1 = ":txt_modulated1",
    .gate1 = ":txt_gate1",
    .to_q = ".attn.add_q_proj",
    .to_k = ".attn.add_k_proj",
    .to_v = ".attn.add_v_proj",
    .norm_q = ".attn.norm_added_q",
    .norm_k = ".attn.norm_added_k",
    .query_rope = ":txt_query_rope",
    .key_rope = ":txt_key_rope",
    .to_out = ".attn.to_add_out",
    .attn_residual = ":txt_attn_residual",
    .norm2 = ".txt_norm2",
    .modulated2 = ":txt_modulated2",
    .gate2 = ":txt_gate2",
    .mlp = ".txt_mlp",
    .mlp_proj = ".txt_mlp.net.0.proj",
    .mlp_gelu = ".txt_mlp.net.0",
    .mlp_out = ".txt_mlp.net.2",
    .stream = ":txt",
};

Transformer::Transformer(WeightStore store, LoraSet loras)
    : config_(ReadTransformerConfig(store)), store_(std::move(store)), loras_(std::move(loras)) {
  Bind();
}

void Transformer::ReleasePages() const {
  store_.ReleasePages();
  loras_.ReleasePages();
}

void Transformer::ThrowIfDamaged() const {
  store_.ThrowIfDamaged();
  loras_.ThrowIfDamaged();
}

Transformer::Stream Transformer::BindStream(WeightBinder& binder, const std::string& block,
                                            const StreamNames& names) const {
  const int64_t dim = config_.inner_dim(), head_dim = config_.attention_head_dim;
  return {
      .names = &names,
      .mod = BindLinear(binder, block + names.mod, 6 * dim, dim),
      .to_q = BindLinear(binder, block + names.to_q, dim, dim),
      .to_k = BindLinear(binder, block + names.to_k, dim, dim),
      .to_v = BindLinear(binder, block + names.to_v, dim, dim),
      .to_out = BindLinear(binder, block + names.to_out, dim, dim),
      .norm_q = binder.Floats(block + names.norm_q + ".weight", {head_dim}),
      .norm_k = binder.Floats(block + names.norm_k + ".weight", {head_dim}),
      .mlp = {.proj = BindLinear(binder, block + names.mlp_proj, 4 * dim, dim),
              .out = BindLinear(binder, block + names.mlp_out, dim, 4 * dim)},
  };
}

void Transformer::Bind() {
  const int64_t dim = config_.inner_dim();
  WeightBinder binder(store_, &loras_);
  img_in_ = BindLinear(binder, "img_in", dim, config_.in_channels);
  txt_norm_ = binder.Floats("txt_norm.weight", {config_.joint_attention_dim});
  txt_in_ = BindLinear(binder, "txt_in", dim, config_.joint_attention_dim);
  time_linear_1_ = BindLinear(binder, "time_text_embed.timestep_embedder.linear_1", dim, kTimeChannels);
  time_linear_2_ = BindLinear(binder, "time_text_embed.timestep_embedder.linear_2", dim, dim);
  for (int64_t i = 0; i < config_.num_layers; ++i) {
    const std::string block = fmt::format("transformer_blocks.{}", i);
    transformer_blocks_.push_back(
        {BindStream(binder, block, StreamNames::kImg), BindStream(binder, block, StreamNames::kTxt)});
  }
  norm_out_linear_ = BindLinear(binder, "norm_out.linear", 2 * dim, dim);
  proj_out_ =
      BindLinear(binder, "proj_out", config_.patch_size * config_.patch_size * config_.out_channels, dim);
  binder.Finish();
}

// Positions are centred: a picture's row y has the position y − ⌈height / 2⌉. The text continues on the
// diagonal, from the first position that no picture token uses.
Transformer::RopeTable Transformer::MakeRope(int64_t text_tokens, TokenGrid grid) const {
  const int64_t half = config_.attention_head_dim / 2;
  const int64_t tokens = text_tokens + grid.height * grid.width;
  RopeTable rope{Tensor({tokens, half}), Tensor({tokens, half})};

  const auto fill_row = [&](int64_t token, const std::array<int64_t, 3>& position) {
    float* cos = rope.cos.row(token);
    float* sin = rope.sin.row(token);
    for (size_t axis = 0; axis < 3; ++axis) {
      const int64_t width = config_.axes_dims_rope[axis];
      for (int64_t i = 0; i < width; i += 2) {
        const float freq = 1.0f / std::pow(kRopeTheta, static_cast<float>(i) / static_cast<float>(width));
        const float angle = static_cast<float>(position[axis]) * freq;
        *cos++ = std::cos(angle);
        *sin++ = std::sin(angle);
      }
    }
  };

  const int64_t text_start = std::max(grid.height / 2, grid.width / 2);
  for (int64_t t = 0; t < text_tokens; ++t) fill_row(t, {text_start + t, text_start + t, text_start + t});
  const int64_t top = grid.height - grid.height / 2, left = grid.width - grid.width / 2;
  for (int64_t y = 0; y < grid.height; ++y) {
    for (int64_t x = 0; x < grid.width; ++x)
      fill_row(text_tokens + y * grid.width + x, {0, y - top, x - left});
  }
  return rope;
}

Tensor Transformer::EmbedTimestep(float timestep, ThreadPool& pool, const Tap& tap) const {
  constexpr int64_t kHalf = kTimeChannels / 2;
  Tensor time_proj({1, kTimeChannels});
  for (int64_t i = 0; i < kHalf; ++i) {
    const float exponent =
        static_cast<float>(-std::log(10000.0)) * static_cast<float>(i) / static_cast<float>(kHalf);
    const float angle = 1000.0f * (timestep * std::exp(exponent));
    time_proj[i] = std::cos(angle);
    time_proj[kHalf + i] = std::sin(angle);
  }
  tap("time_text_embed.time_proj", time_proj);

  Tensor hidden({1, config_.inner_dim()}), temb({1, config_.inner_dim()});
  time_linear_1_(time_proj.data(), 1, hidden.data(), pool);
  tap("time_text_embed.timestep_embedder.linear_1", hidden);
  Silu(hidden.data(), hidden.size(), hidden.data(), pool);
  time_linear_2_(hidden.data(), 1, temb.data(), pool);
  tap("time_text_embed.timestep_embedder.linear_2", temb);
  tap("time_text_embed.timestep_embedder", temb);
  tap("time_text_embed", temb);
  return temb;
}

// Buffers that all blocks share. Joint ones hold the sequence [text, image].
struct Transformer::Scratch {
  Scratch(const TransformerConfig& config, int64_t img_tokens, int64_t txt_tokens)
      : img_mod({1, 6 * config.inner_dim()}),
        txt_mod({1, 6 * config.inner_dim()}),
        modulated({1, std::max(img_tokens, txt_tokens), config.inner_dim()}),
        branch({1, std::max(img_tokens, txt_tokens), config.inner_dim()}),
        mlp_hidden({1, std::max(img_tokens, txt_tokens), 4 * config.inner_dim()}),
        query({1, txt_tokens + img_tokens, config.inner_dim()}),
        key(query.shape()),
        value(query.shape()),
        attn_output(query.shape()) {}

  Tensor img_mod, txt_mod;
  Tensor modulated;  // the input of the attention or the MLP, one stream at a time
  Tensor branch;     // their output
  Tensor mlp_hidden;
  Tensor query, key, value, attn_output;
};

// norm1, modulation, q/k/v with their norms and RoPE, into this stream's rows of the joint sequence.
void Transformer::ProjectQkv(const Stream& w, const Tensor& hidden_states, float* mod, Span span,
                             const RopeTable& rope, Scratch& s, ThreadPool& pool, const Tap& tap) const {
  const int64_t dim = config_.inner_dim(), heads = config_.num_attention_heads,
                head_dim = config_.attention_head_dim;
  const StreamNames& names = *w.names;
  float *shift = mod, *scale = mod + dim, *gate = mod + 2 * dim;
  const Shape flat = {1, span.count, dim}, split = {1, span.count, heads, head_dim};
  float *q = s.query.row(span.begin), *k = s.key.row(span.begin), *v = s.value.row(span.begin);
  float* x = s.modulated.data();

  LayerNorm(hidden_states.data(), span.count, dim, kEps, x, pool);
  tap(names.norm1, x, flat);
  Modulate(x, span.count, dim, scale, shift, x, pool);
  tap(names.modulated1, x, flat);
  tap(names.gate1, gate, {1, dim});

  w.to_q(x, span.count, q, pool);
  tap(names.to_q, q, flat);
  w.to_k(x, span.count, k, pool);
  tap(names.to_k, k, flat);
  w.to_v(x, span.count, v, pool);
  tap(names.to_v, v, flat);

  RmsNorm(q, span.count * heads, head_dim, w.norm_q.data(), kEps, q, pool);
  tap(names.norm_q, q, split);
  RmsNorm(k, span.count * heads, head_dim, w.norm_k.data(), kEps, k, pool);
  tap(names.norm_k, k, split);

  const float *cos = rope.cos.row(span.begin), *sin = rope.sin.row(span.begin);
  RopeInterleaved(q, span.count, heads, head_dim, cos, sin, pool);
  tap(names.query_rope, q, split);
  RopeInterleaved(k, span.count, heads, head_dim, cos, sin, pool);
  tap(names.key_rope, k, split);
}

// Output projection and gated residual of this stream's rows of the joint attention.
void Transformer::FinishAttention(const Stream& w, Tensor& hidden_states, const float* mod, Span span,
                                  Scratch& s, ThreadPool& pool, const Tap& tap) const {
  const int64_t dim = config_.inner_dim();
  const StreamNames& names = *w.names;
  const float* gate = mod + 2 * dim;
  w.to_out(s.attn_output.row(span.begin), span.count, s.branch.data(), pool);
  tap(names.to_out, s.branch.data(), {1, span.count, dim});
  AddGated(s.branch.data(), span.count, dim, gate, hidden_states.data(), pool);
  tap(names.attn_residual, hidden_states);
}

// norm2, modulation, MLP, gated residual.
void Transformer::RunMlp(const Stream& w, Tensor& hidden_states, float* mod, Scratch& s, ThreadPool& pool,
                         const Tap& tap) const {
  const int64_t dim = config_.inner_dim(), tokens = hidden_states.dim(1);
  const StreamNames& names = *w.names;
  float *shift = mod + 3 * dim, *scale = mod + 4 * dim, *gate = mod + 5 * dim;
  const Shape flat = {1, tokens, dim}, wide = {1, tokens, 4 * dim};
  float* x = s.modulated.data();

  LayerNorm(hidden_states.data(), tokens, dim, kEps, x, pool);
  tap(names.norm2, x, flat);
  Modulate(x, tokens, dim, scale, shift, x, pool);
  tap(names.modulated2, x, flat);
  tap(names.gate2, gate, {1, dim});

  w.mlp.proj(x, tokens, s.mlp_hidden.data(), pool);
  tap(names.mlp_proj, s.mlp_hidden.data(), wide);
  GeluTanh(s.mlp_hidden.data(), tokens * 4 * dim, s.mlp_hidden.data(), pool);
  tap(names.mlp_gelu, s.mlp_hidden.data(), wide);
  w.mlp.out(s.mlp_hidden.data(), tokens, s.branch.data(), pool);
  tap(names.mlp_out, s.branch.data(), flat);
  tap(names.mlp, s.branch.data(), flat);
  AddGated(s.branch.data(), tokens, dim, gate, hidden_states.data(), pool);
  tap(names.stream, hidden_states);
}

void Transformer::RunBlock(const Block& w, Tensor& img, Tensor& txt, const Tensor& silu_temb,
                           const RopeTable& rope, Scratch& s, ThreadPool& pool, const Tap& tap) const {
  const Span txt_span = {0, txt.dim(1)}, img_span = {txt.dim(1), img.dim(1)};
  const int64_t tokens = txt_span.count + img_span.count;

  w.img.mod(silu_temb.data(), 1, s.img_mod.data(), pool);
  tap(w.img.names->mod, s.img_mod);
  w.txt.mod(silu_temb.data(), 1, s.txt_mod.data(), pool);
  tap(w.txt.names->mod, s.txt_mod);

  ProjectQkv(w.img, img, s.img_mod.data(), img_span, rope, s, pool, tap);
  ProjectQkv(w.txt, txt, s.txt_mod.data(), txt_span, rope, s, pool, tap);
  const AttentionShape shape = {.queries = tokens,
                                .keys = tokens,
                                .heads = config_.num_attention_heads,
                                .kv_heads = config_.num_attention_heads,
                                .head_dim = config_.attention_head_dim,
                                .q_stride = config_.inner_dim(),
                                .kv_stride = config_.inner_dim()};
  ShowAttention(s.query, s.key, shape, pool, tap);
  Attention(s.query.data(), s.key.data(), s.value.data(), shape, s.attn_output.data(), pool);
  tap(":attn_output", s.attn_output);

  FinishAttention(w.img, img, s.img_mod.data(), img_span, s, pool, tap);
  FinishAttention(w.txt, txt, s.txt_mod.data(), txt_span, s, pool, tap);
  RunMlp(w.img, img, s.img_mod.data(), s, pool, tap);
  RunMlp(w.txt, txt, s.txt_mod.data(), s, pool, tap);
}

Tensor Transformer::PredictVelocity(const Tensor& latents, const Tensor& prompt_embeds, float timestep,
                                    TokenGrid grid, const Compute& compute, const Tap& tap) const {
  ThreadPool& pool = compute.pool;
  const int64_t dim = config_.inner_dim(), img_tokens = latents.dim(1), txt_tokens = prompt_embeds.dim(1);

  Tensor img({1, img_tokens, dim});
  img_in_(latents.data(), img_tokens, img.data(), pool);
  tap("img_in", img);

  Tensor txt_normed(prompt_embeds.shape()), txt({1, txt_tokens, dim});
  RmsNorm(prompt_embeds.data(), txt_tokens, config_.joint_attention_dim, txt_norm_.data(), kEps,
          txt_normed.data(), pool);
  tap("txt_norm", txt_normed);
  txt_in_(txt_normed.data(), txt_tokens, txt.data(), pool);
  tap("txt_in", txt);

  Tensor silu_temb = EmbedTimestep(timestep, pool, tap);  // every use of temb starts with a SiLU
  Silu(silu_temb.data(), silu_temb.size(), silu_temb.data(), pool);

  const RopeTable rope = MakeRope(txt_tokens, grid);
  Scratch scratch(config_, img_tokens, txt_tokens);
  for (size_t i = 0; i < transformer_blocks_.size(); ++i) {
    compute.Continue(i, transformer_blocks_.size());
    RunBlock(transformer_blocks_[i], img, txt, silu_temb, rope, scratch, pool,
             tap.Under("transformer_blocks.", static_cast<int64_t>(i), ""));
  }

  Tensor norm_out_mod({1, 2 * dim});  // here the order is [scale, shift]
  norm_out_linear_(silu_temb.data(), 1, norm_out_mod.data(), pool);
  tap("norm_out.linear", norm_out_mod);
  LayerNorm(img.data(), img_tokens, dim, kEps, img.data(), pool);
  tap("norm_out.norm", img);
  Modulate(img.data(), img_tokens, dim, norm_out_mod.data(), norm_out_mod.data() + dim, img.data(), pool);
  tap("norm_out", img);

  Tensor velocity({1, img_tokens, proj_out_.weight.rows});
  proj_out_(img.data(), img_tokens, velocity.data(), pool);
  tap("proj_out", velocity);
  return velocity;
}

}  // namespace qwen_image
