// Embeddings and the way through the blocks.
#include "families/qwen_image_21/transformer_pass.h"

#include <algorithm>
#include <array>

#include "model/token_latents.h"

namespace qwen_image::qwen_image_21 {
namespace {

// How many blocks a device that collects work puts together before it computes: memory stays bounded,
// progress is seen, and a request to stop is heard.
constexpr size_t kBlocksAtOnce = 4;

Rope RowsOf(Ops& ops, const Rope& rope, int64_t first, int64_t count) {
  return {ops.Rows(rope.cos, first, count), ops.Rows(rope.sin, first, count)};
}

}  // namespace

TransformerPass::TransformerPass(const Transformer& model, std::vector<Prompt> prompts,
                                 const Tensor* references, std::optional<Keeping> keeping,
                                 const Compute& compute)
    : model_(model),
      config_(model.config()),
      references_(references),
      keeping_(keeping),
      compute_(compute),
      ops_(model.backend().Start(compute)) {
  ops_->Run([&] {
    for (Prompt& prompt : prompts) {
      const RopeTable rope = MakeRope(config_, prompt.sequence);
      memories_.push_back({std::move(prompt), {ops_->FromHost(rope.cos), ops_->FromHost(rope.sin)}, {}});
    }
  });
}

// [2, inner_dim]: of the timestep, and of t = 0.
Array TransformerPass::EmbedTimestep(float timestep, const Tap& tap) {
  const TransformerWeights& w = model_.weights();
  Array time_proj = ops_->FromHost(TimeProjection(timestep));
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

Array TransformerPass::EmbedText(const Tensor& embeds, const Tap& tap) {
  const TransformerWeights& w = model_.weights();
  const Array x = ops_->FromHost(embeds);
  Array hidden = ops_->New({1, embeds.dim(1), config_.inner_dim()}), txt = ops_->New(hidden.shape);
  const Projection in_layer{
      .x = &x,
      .norm = {Norm::Kind::kRms, static_cast<float>(config_.eps), &w.text_norm, "txt_in.text_norm"},
      .products = {{&w.txt_in_layer, "txt_in.in_layer", &hidden}},
      .activation = Activation::kGeluTanh};
  ops_->Project({&in_layer, 1}, tap);
  ops_->Multiply(w.txt_out_layer, hidden, txt);
  for (const char* name : {"txt_in.out_layer", "txt_in"}) ops_->Show(tap, name, txt);
  return txt;
}

// The joint sequence. The encoder's own tokens of pictures give way to the pictures' latents.
Array TransformerPass::Join(const Memory& memory, const Tensor& latents, const Tap& tap) {
  const JointSequence& sequence = memory.prompt.sequence;
  Tensor joined;
  if (references_) joined = JoinPacked(*references_, latents);
  const Tensor& pictures = references_ ? joined : latents;
  Array img = ops_->New({1, pictures.dim(1), config_.inner_dim()});
  ops_->Multiply(model_.weights().img_in, ops_->FromHost(pictures), img);
  ops_->Show(tap, "img_in", img);
  const Array txt = EmbedText(*memory.prompt.embeds, tap);
  std::vector<Array> parts;
  int64_t picture = 0;  // row of img
  for (const JointSequence::Segment& segment : sequence.segments) {
    if (segment.is_text) {
      parts.push_back(ops_->Rows(txt, segment.first_embed, segment.tokens()));
    } else {
      parts.push_back(ops_->Rows(img, picture, segment.tokens()));
      picture += segment.tokens();
    }
  }
  parts.push_back(ops_->Rows(img, picture, sequence.target.tokens()));
  return ops_->JoinRows(parts);
}

TransformerPass::Flow TransformerPass::Embed(const Memory& memory, const Tensor& latents, const Tap& tap) {
  const JointSequence& sequence = memory.prompt.sequence;
  Flow flow{.state = {.prefix = sequence.prefix()}, .silu_temb = {}, .tap = tap};
  BlockState& state = flow.state;
  if (tap || memory.kept.empty()) {
    state.hidden = Join(memory, latents, tap);
    state.rope = memory.rope;
    state.spans = sequence.Spans();
  } else {
    state.hidden = ops_->New({1, latents.dim(1), config_.inner_dim()});
    ops_->Multiply(model_.weights().img_in, ops_->FromHost(latents), state.hidden);
    state.rope = RowsOf(*ops_, memory.rope, sequence.prefix(), sequence.target.tokens());
  }
  return flow;
}

// One modulation for all blocks.
void TransformerPass::Modulate(float timestep, Flow& flow) {
  const int64_t dim = config_.inner_dim();
  flow.silu_temb = EmbedTimestep(timestep, flow.tap);
  ops_->Silu(flow.silu_temb);  // every use of it starts with one
  Array modulation = ops_->New({2, kModulationParts * dim});
  ops_->Multiply(model_.weights().modulation, flow.silu_temb, modulation);
  ops_->Show(flow.tap, "modulation.1", modulation);
  std::vector<Array> parts;
  for (int64_t part = 0; part < kModulationParts; ++part) {
    parts.push_back(ops_->Cols(modulation, part * dim, dim));
    if (part == kAttentionGate || part == kMlpGate) ops_->Tanh(parts.back());
  }
  flow.state.modulation = ops_->JoinCols(parts);
}

void TransformerPass::PrepareScratch(std::span<const Flow> flows) {
  int64_t rows = 0, tokens = 0;
  for (size_t i = 0; i < flows.size(); ++i) {
    rows = std::max(rows, flows[i].state.hidden.dim(1));
    tokens = std::max(tokens, memories_[i].prompt.sequence.tokens());
  }
  if (block_pass_ && block_pass_->Fits(rows, tokens)) return;
  block_pass_.reset();  // give the old memory back first
  block_pass_.emplace(*ops_, config_, rows, tokens);
}

void TransformerPass::RunCompiled(const TransformerWeights::Block& block, BlockState& state,
                                  const PrefixCache& kept) {
  std::array<Array, 6> arrays = {state.hidden,   state.modulation, state.rope.cos,
                                 state.rope.sin, kept.key,         kept.value};
  Ops::CompiledPart part{.layers = LayersOf(block),
                         .vectors = {&block.norm_q, &block.norm_k},
                         .numbers = {},
                         .changed = 1,
                         .body = {}};
  part.body = [&config = config_, &block](Ops& ops, std::span<Array> x) {
    PrefixCache prefix = {x[4], x[5]};
    BlockState inside{
        .hidden = x[0], .rope = {x[2], x[3]}, .modulation = x[1], .prefix = x[4].dim(1), .spans = {}};
    const int64_t rows = inside.hidden.dim(1);
    BlockPass(ops, config, rows, inside.prefix + rows).Run(block, inside, prefix, std::nullopt, Tap());
    x[0] = inside.hidden;
  };
  ops_->RunCompiled(part, arrays);
  state.hidden = arrays[0];
}

void TransformerPass::RunBlock(size_t block, size_t place, Flow& flow, Memory& memory) {
  const TransformerWeights::Block& w = model_.weights().transformer_blocks[block];
  BlockState& state = flow.state;
  if (!state.joint()) {
    if (ops_->compiles()) return RunCompiled(w, state, memory.kept[place]);
    block_pass_->Run(w, state, memory.kept[place], std::nullopt, Tap());
    return;
  }
  // What a listener has changed is not for other steps.
  const std::optional<Keeping> keep = flow.tap ? std::nullopt : keeping_;
  PrefixCache kept;
  block_pass_->Run(w, state, kept, keep,
                   flow.tap.Under("transformer_blocks.", static_cast<int64_t>(block), ""));
  if (keep) memory.kept.push_back(std::move(kept));
}

void TransformerPass::RunBlocks(std::span<Flow> flows) {
  for (Flow& flow : flows) ops_->Show(flow.tap, ":joint", flow.state.hidden);
  const Ops::Blocks own = ops_->OwnBlocks(model_.weights().transformer_blocks.size());
  // A machine that has some of the blocks hands a sequence over before it begins with the next one.
  const bool all = own.count() == model_.weights().transformer_blocks.size();
  const size_t together = all ? flows.size() : 1;
  for (size_t first = 0; first < flows.size(); first += together) {
    const std::span<Flow> next = flows.subspan(first, together);
    for (Flow& flow : next) ops_->TakeOver(std::array{&flow.state.hidden});
    RunBlocks(own, next, std::span(memories_).subspan(first, together));
    for (Flow& flow : next) ops_->HandOver(std::array{&flow.state.hidden});
  }
}

void TransformerPass::RunBlocks(const Ops::Blocks& own, std::span<Flow> flows, std::span<Memory> memories) {
  for (size_t i = 0; i < own.count(); ++i) {
    for (size_t j = 0; j < flows.size(); ++j) {
      compute_.Continue(i * flows.size() + j, own.count() * flows.size());
      RunBlock(own.begin + i, i, flows[j], memories[j]);
      if ((i + 1) % kBlocksAtOnce == 0 || i + 1 == own.count())
        ops_->Finish(std::array{&flows[j].state.hidden});
    }
  }
}

// Of the prefix nothing is wanted; but a listener is shown what the official model computes.
Tensor TransformerPass::ProjectOut(Flow& flow) {
  const TransformerWeights& w = model_.weights();
  const Tap& tap = flow.tap;
  BlockState& state = flow.state;
  const int64_t prefix = state.joint() ? state.prefix : 0, target = state.hidden.dim(1) - prefix;
  const bool all_rows =
      tap.Wants("norm_out.norm") || tap.Wants("norm_out") || tap.Wants("proj_out") || !state.joint();
  const Array hidden = all_rows ? state.hidden : ops_->Rows(state.hidden, prefix, target);

  Array scale = ops_->New({2, config_.inner_dim()});
  ops_->Multiply(w.norm_out_linear, flow.silu_temb, scale);
  ops_->Show(tap, "norm_out.linear", scale);
  Array velocity = ops_->New({1, hidden.dim(1), config_.out_channels});
  Modulation modulation{.values = &scale, .scale = 0, .spans = {}};
  if (hidden.dim(1) > target) modulation.spans.push_back({0, prefix, kPrefixRow});
  modulation.spans.push_back({hidden.dim(1) - target, target, kTargetRow});
  const Projection proj_out{
      .x = &hidden,
      .norm = {Norm::Kind::kLayer, static_cast<float>(config_.eps), nullptr, "norm_out.norm"},
      .modulation = modulation,
      .modulated = "norm_out",
      .products = {{&w.proj_out, "proj_out", &velocity}}};
  ops_->Project({&proj_out, 1}, tap);
  return ops_->ToHost(ops_->Rows(velocity, hidden.dim(1) - target, target));
}

std::vector<Tensor> TransformerPass::PredictVelocities(const Tensor& latents, float timestep,
                                                       std::span<const Tap> taps) {
  std::vector<Tensor> velocities;
  ops_->Run([&] {
    std::vector<Flow> flows;
    for (size_t i = 0; i < memories_.size(); ++i) flows.push_back(Embed(memories_[i], latents, taps[i]));
    for (Flow& flow : flows) {
      if (&flow == &flows.front() || flow.tap) {
        Modulate(timestep, flow);
      } else {  // the timestep is the same for all
        flow.silu_temb = flows.front().silu_temb;
        flow.state.modulation = flows.front().state.modulation;
      }
    }
    PrepareScratch(flows);
    RunBlocks(flows);
    if (model_.backend().copies_weights()) model_.store().ReleasePages();
    for (Flow& flow : flows) velocities.push_back(ProjectOut(flow));
  });
  model_.ThrowIfDamaged();
  return velocities;
}

}  // namespace qwen_image::qwen_image_21
