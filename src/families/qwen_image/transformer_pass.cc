// Embeddings and the way through the blocks.
#include "families/qwen_image/transformer_pass.h"

#include <algorithm>
#include <array>

namespace qwen_image {
namespace {

// How many blocks a device that collects work puts together before it computes: memory stays bounded,
// progress is seen, and a request to stop is heard.
constexpr size_t kBlocksAtOnce = 4;

}  // namespace

TransformerPass::TransformerPass(const Transformer& model, const Compute& compute)
    : model_(model), config_(model.config()), compute_(compute), ops_(model.backend().Start(compute)) {}

// [1, inner_dim]; with zero_cond_t [2, inner_dim]: the second row is for t = 0, which references have.
Array TransformerPass::EmbedTimestep(float timestep, const Tap& tap) {
  const TransformerWeights& w = model_.weights();
  Array time_proj = ops_->FromHost(TimeProjection(config_, timestep));
  ops_->Show(tap, "time_text_embed.time_proj", time_proj);
  const Shape shape = {time_proj.dim(0), config_.inner_dim()};
  Array hidden = ops_->New(shape), temb = ops_->New(shape);
  ops_->Multiply(w.time_linear_1, time_proj, hidden);
  ops_->Show(tap, "time_text_embed.timestep_embedder.linear_1", hidden);
  ops_->Silu(hidden);
  ops_->Multiply(w.time_linear_2, hidden, temb);
  for (const char* name :
       {"time_text_embed.timestep_embedder.linear_2", "time_text_embed.timestep_embedder", "time_text_embed"})
    ops_->Show(tap, name, temb);
  return temb;
}

TransformerPass::Sequence TransformerPass::Embed(const Tensor& latents, const Transformer::Prompt& prompt,
                                                 float timestep, std::span<const TokenGrid> pictures) {
  const TransformerWeights& w = model_.weights();
  const int64_t dim = config_.inner_dim(), img_tokens = latents.dim(1), txt_tokens = prompt.embeds.dim(1);
  const RopeTable rope = MakeRope(config_, txt_tokens, pictures);
  const Rope joint = {ops_->FromHost(rope.cos), ops_->FromHost(rope.sin)};
  const auto rows = [&](int64_t first, int64_t count) {
    return Rope{ops_->Rows(joint.cos, first, count), ops_->Rows(joint.sin, first, count)};
  };
  Sequence sequence{.state = {.img = ops_->New({1, img_tokens, dim}),
                              .txt = ops_->New({1, txt_tokens, dim}),
                              .drawn_tokens = pictures.front().tokens(),
                              .img_mod = {},
                              .txt_mod = {},
                              .img_rope = rows(txt_tokens, img_tokens),
                              .txt_rope = rows(0, txt_tokens)},
                    .silu_temb = {},
                    .tap = prompt.tap};
  BlockState& state = sequence.state;
  ops_->Multiply(w.img_in, ops_->FromHost(latents), state.img);
  ops_->Show(prompt.tap, "img_in", state.img);

  const Array embeds = ops_->FromHost(prompt.embeds);
  const Projection txt_in{.x = &embeds,
                          .norm = {Norm::Kind::kRms, kTransformerEps, &w.txt_norm, "txt_norm"},
                          .products = {{&w.txt_in, "txt_in", &state.txt}}};
  ops_->Project({&txt_in, 1}, prompt.tap);

  sequence.silu_temb = EmbedTimestep(timestep, prompt.tap);
  ops_->Silu(sequence.silu_temb);  // every use of it starts with one
  return sequence;
}

void TransformerPass::Modulate(const TransformerWeights::Block& block, Sequence& sequence) {
  BlockState& state = sequence.state;
  const int64_t width = 6 * config_.inner_dim();
  state.img_mod = ops_->New({sequence.silu_temb.dim(0), width});
  state.txt_mod = ops_->New({1, width});
  ops_->Multiply(block.img.mod, sequence.silu_temb, state.img_mod);
  ops_->Multiply(block.txt.mod, ops_->Rows(sequence.silu_temb, 0, 1), state.txt_mod);
}

void TransformerPass::RunCompiled(const TransformerWeights::Block& block, BlockState& state) {
  std::array<Array, 8> arrays = {state.img,          state.txt,          state.img_mod,
                                 state.txt_mod,      state.img_rope.cos, state.img_rope.sin,
                                 state.txt_rope.cos, state.txt_rope.sin};
  Ops::CompiledPart part{
      .layers = LayersOf(block),
      .vectors = {&block.img.norm_q, &block.img.norm_k, &block.txt.norm_q, &block.txt.norm_k},
      .numbers = {},
      .changed = 2,
      .body = {}};
  if (config_.zero_cond_t) part.numbers = {state.drawn_tokens};  // else all tokens are modulated alike
  part.body = [&config = config_, &block, drawn = state.drawn_tokens](Ops& ops, std::span<Array> x) {
    BlockState inside{x[0], x[1], drawn, x[2], x[3], {x[4], x[5]}, {x[6], x[7]}};
    BlockPass(ops, config, inside.txt.dim(1), inside.img.dim(1)).Run(block, inside, Tap());
    x[0] = inside.img;
    x[1] = inside.txt;
  };
  ops_->RunCompiled(part, arrays);
  state.img = arrays[0];
  state.txt = arrays[1];
}

void TransformerPass::RunBlocks(std::span<Sequence> sequences) {
  const Ops::Blocks own = ops_->OwnBlocks(model_.weights().transformer_blocks.size());
  // A machine that has some of the blocks hands a sequence over before it begins with the next one.
  const bool all = own.count() == model_.weights().transformer_blocks.size();
  const size_t together = all ? sequences.size() : 1;
  for (size_t first = 0; first < sequences.size(); first += together) {
    const std::span<Sequence> next = sequences.subspan(first, together);
    for (Sequence& sequence : next) ops_->TakeOver(std::array{&sequence.state.img, &sequence.state.txt});
    RunBlocks(own, next);
    for (Sequence& sequence : next) ops_->HandOver(std::array{&sequence.state.img, &sequence.state.txt});
  }
}

void TransformerPass::RunBlocks(const Ops::Blocks& own, std::span<Sequence> sequences) {
  const auto& blocks = model_.weights().transformer_blocks;
  for (size_t i = own.begin; i < own.end; ++i) {
    for (size_t j = 0; j < sequences.size(); ++j) {
      compute_.Continue((i - own.begin) * sequences.size() + j, own.count() * sequences.size());
      Sequence& sequence = sequences[j];
      BlockState& state = sequence.state;
      const Tap tap = sequence.tap.Under("transformer_blocks.", static_cast<int64_t>(i), "");
      if (j == 0 || tap) {  // the timestep is the same for all, but a listener may change it for one
        Modulate(blocks[i], sequence);
      } else {
        state.img_mod = sequences[0].state.img_mod;
        state.txt_mod = sequences[0].state.txt_mod;
      }
      if (ops_->compiles() && !tap) {
        RunCompiled(blocks[i], state);
      } else {
        block_pass_->Run(blocks[i], state, tap);
      }
      if ((i + 1) % kBlocksAtOnce == 0 || i + 1 == own.end) ops_->Finish(std::array{&state.img, &state.txt});
    }
  }
}

// Of the references nothing is wanted; but a listener is shown what the official model computes.
Tensor TransformerPass::ProjectOut(Sequence& sequence) {
  const TransformerWeights& w = model_.weights();
  const Tap& tap = sequence.tap;
  const bool listens = tap.Wants("norm_out.norm") || tap.Wants("norm_out") || tap.Wants("proj_out");
  const int64_t drawn = sequence.state.drawn_tokens, out = w.proj_out.weight.rows;
  const Array img = listens ? sequence.state.img : ops_->Rows(sequence.state.img, 0, drawn);

  Array norm_out_mod = ops_->New({1, 2 * config_.inner_dim()});
  ops_->Multiply(w.norm_out_linear, ops_->Rows(sequence.silu_temb, 0, 1), norm_out_mod);
  ops_->Show(tap, "norm_out.linear", norm_out_mod);
  Array velocity = ops_->New({1, img.dim(1), out});
  Modulation modulation;
  modulation.values = &norm_out_mod;
  modulation.scale = 0;
  modulation.shift = 1;
  modulation.spans = {{0, img.dim(1), 0}};
  const Projection proj_out{.x = &img,
                            .norm = {Norm::Kind::kLayer, kTransformerEps, nullptr, "norm_out.norm"},
                            .modulation = modulation,
                            .modulated = "norm_out",
                            .products = {{&w.proj_out, "proj_out", &velocity}}};
  ops_->Project({&proj_out, 1}, tap);
  return ops_->ToHost(ops_->Rows(velocity, 0, drawn));
}

std::vector<Tensor> TransformerPass::PredictVelocities(const Tensor& latents,
                                                       std::span<const Transformer::Prompt> prompts,
                                                       float timestep, std::span<const TokenGrid> pictures) {
  std::vector<Tensor> velocities;
  ops_->Run([&] {
    std::vector<Sequence> sequences;
    int64_t txt_tokens = 0;
    for (const Transformer::Prompt& prompt : prompts) {
      sequences.push_back(Embed(latents, prompt, timestep, pictures));
      txt_tokens = std::max(txt_tokens, prompt.embeds.dim(1));
    }
    if (!block_pass_ || !block_pass_->Fits(txt_tokens, latents.dim(1))) {
      block_pass_.reset();  // give the old memory back first
      block_pass_.emplace(*ops_, config_, txt_tokens, latents.dim(1));
    }
    RunBlocks(sequences);
    if (model_.backend().copies_weights()) model_.store().ReleasePages();
    for (Sequence& sequence : sequences) velocities.push_back(ProjectOut(sequence));
  });
  model_.ThrowIfDamaged();
  return velocities;
}

}  // namespace qwen_image
