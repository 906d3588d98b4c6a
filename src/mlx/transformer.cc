// Embeddings and the way through the blocks.
#include "mlx/transformer.h"

#include "mlx/transformer_impl.h"

namespace qwen_image::on_mlx {
namespace {

// How many blocks are put together before they are computed: memory stays bounded, progress is seen, and a
// request to stop is heard.
constexpr size_t kBlocksAtOnce = 4;

}  // namespace

Transformer::Transformer(const qwen_image::Transformer& host, const Placement& placement, Compile compile)
    : host_(host), config_(host.config()), placement_(placement), compile_(compile) {}

Transformer::~Transformer() = default;

void Transformer::Release() const {
  if (placement_.keep_weights) return;
  compiled_.clear();
  weights_.reset();
  mx::clear_cache();
}

Transformer::Weights& Transformer::LoadWeights() const {
  // The layers at both ends compute in float32: they are small, and everything passes through them.
  if (!weights_) weights_ = std::make_unique<Weights>(host_.weights(), Placement{placement_.device});
  return *weights_;
}

// [1, inner_dim]; with zero_cond_t [2, inner_dim]: the second row is for t = 0, which references have.
array Transformer::EmbedTimestep(float timestep, const Tap& tap) const {
  const Weights& w = *weights_;
  array time_proj = ToDevice(TimeProjection(config_, timestep));
  TapArray(tap, "time_text_embed.time_proj", time_proj);
  array hidden = w.time_linear_1(time_proj);
  TapArray(tap, "time_text_embed.timestep_embedder.linear_1", hidden);
  array temb = w.time_linear_2(Silu(hidden));
  TapArray(tap, "time_text_embed.timestep_embedder.linear_2", temb);
  TapArray(tap, "time_text_embed.timestep_embedder", temb);
  TapArray(tap, "time_text_embed", temb);
  return temb;
}

Transformer::Sequence Transformer::Embed(const Tensor& latents, const qwen_image::Transformer::Prompt& prompt,
                                         float timestep, std::span<const TokenGrid> pictures,
                                         ThreadPool& pool) const {
  const Weights& w = *weights_;
  const RopeTable rope = MakeRope(config_, prompt.embeds.dim(1), pictures);
  const int64_t drawn = pictures.front().tokens();
  std::vector<int32_t> temb_row(static_cast<size_t>(latents.dim(1)), 0);
  std::fill(temb_row.begin() + drawn, temb_row.end(), 1);

  array img = w.img_in(ToDevice(latents));
  TapArray(prompt.tap, "img_in", img);
  array txt_normed = mx::fast::rms_norm(ToDevice(prompt.embeds), w.txt_norm, kTransformerEps);
  TapArray(prompt.tap, "txt_norm", txt_normed);
  array txt = w.txt_in(txt_normed);
  TapArray(prompt.tap, "txt_in", txt);
  const array temb = EmbedTimestep(timestep, prompt.tap);
  return {.img = img,
          .txt = txt,
          .drawn_tokens = drawn,
          .silu_temb = Silu(temb),  // every use of it starts with one
          .temb_row = array(temb_row.data(), {static_cast<int>(temb_row.size())}, mx::int32),
          .cos = ToDevice(rope.cos),
          .sin = ToDevice(rope.sin),
          .pool = &pool,
          .tap = prompt.tap};
}

// Of the references nothing is wanted; but who listens is shown what the official model computes.
Tensor Transformer::ProjectOut(Sequence& sequence) const {
  const Weights& w = *weights_;
  const Tap& tap = sequence.tap;
  const int dim = static_cast<int>(config_.inner_dim()), drawn = static_cast<int>(sequence.drawn_tokens);
  const auto first_tokens = [&](const array& x) { return mx::slice(x, {0, 0, 0}, {1, drawn, x.shape(2)}); };

  array norm_out_mod = w.norm_out_linear(mx::slice(sequence.silu_temb, {0, 0}, {1, dim}));
  TapArray(tap, "norm_out.linear", norm_out_mod);
  array img = mx::fast::layer_norm(tap ? sequence.img : first_tokens(sequence.img), {}, {}, kTransformerEps);
  TapArray(tap, "norm_out.norm", img);
  const std::vector<array> mod = mx::split(norm_out_mod, 2, -1);  // here the order is [scale, shift]
  img = img * (array(1.0f) + mod[0]) + mod[1];
  TapArray(tap, "norm_out", img);
  array velocity = w.proj_out(img);
  TapArray(tap, "proj_out", velocity);
  return ToHost(first_tokens(velocity));
}

std::vector<Tensor> Transformer::PredictVelocities(const Tensor& latents,
                                                   std::span<const qwen_image::Transformer::Prompt> prompts,
                                                   float timestep, std::span<const TokenGrid> pictures,
                                                   const Compute& compute) const {
  return RunOn(placement_.device, [&] {
    Weights& w = LoadWeights();
    std::vector<Sequence> sequences;
    for (const auto& prompt : prompts)
      sequences.push_back(Embed(latents, prompt, timestep, pictures, compute.pool));

    const auto& host_blocks = host_.weights().transformer_blocks;
    const size_t blocks = host_blocks.size();
    for (size_t i = 0; i < blocks; ++i) {
      compute.Continue(i, blocks);
      const Block& block = w.transformer_blocks.Load(host_blocks, i, placement_);
      std::vector<array> done;
      for (Sequence& sequence : sequences) {
        const Tap tap = sequence.tap.Under("transformer_blocks.", static_cast<int64_t>(i), "");
        if (compile_ == Compile::kYes && !tap) {
          RunCompiled(block, sequence);
        } else {
          RunBlock(block, sequence, tap);
        }
        done.insert(done.end(), {sequence.img, sequence.txt});
      }
      if ((i + 1) % kBlocksAtOnce == 0 || i + 1 == blocks) mx::eval(done);
    }
    host_.store().ReleasePages();  // their copies are on the device now

    std::vector<Tensor> velocities;
    for (Sequence& sequence : sequences) velocities.push_back(ProjectOut(sequence));
    return velocities;
  });
}

}  // namespace qwen_image::on_mlx
