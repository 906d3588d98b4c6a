#include "families/qwen_image_21/vision_encoder.h"

#include <algorithm>
#include <array>

#include "families/qwen_image_21/vision_layout.h"

namespace qwen_image::qwen_image_21 {
namespace {

// The pictures of one prompt on their way through the tower.
class VisionEncoderPass {
 public:
  VisionEncoderPass(const VisionEncoder& model, const VisionLayout& layout, const Compute& compute)
      : weights_(model.weights()),
        config_(model.config()),
        layout_(layout),
        compute_(compute),
        ops_(model.backend().Start(compute)) {}

  std::vector<Tensor> Run(const Tensor& pixel_values, const Tap& tap) {
    std::vector<Tensor> results(1 + weights_.deepstack_merger_list.size());
    ops_->Run([&] {
      const Tap visual = tap.Under("model.visual.");
      const int64_t patches = pixel_values.dim(0);
      rope_ = {ops_->FromHost(layout_.cos), ops_->FromHost(layout_.sin)};
      MakeScratch(patches);
      Array hidden_states = ops_->New({patches, config_.hidden_size});
      ops_->Multiply(weights_.patch_embed, ops_->FromHost(pixel_values), hidden_states);
      ops_->Show(visual, "patch_embed", hidden_states);
      ops_->Add(ops_->FromHost(PositionEmbeddings()), hidden_states);
      ops_->Show(tap, "model.visual:positioned", hidden_states);

      size_t features = 1;
      for (size_t i = 0; i < weights_.blocks.size(); ++i) {
        compute_.Continue(i, weights_.blocks.size());
        const auto index = static_cast<int64_t>(i);
        const Tap block_tap = visual.Under("blocks.", index, ".");
        RunAttention(weights_.blocks[i], hidden_states, block_tap);
        RunMlp(weights_.blocks[i], hidden_states, block_tap);
        ops_->Show(visual.Under("blocks.", index, ""), "", hidden_states);
        ops_->Finish(std::array{&hidden_states});
        if (const int64_t merger = DeepstackMergerOf(index); merger >= 0)
          results[features++] = RunDeepstackMerger(merger, hidden_states, visual);
      }

      Array embeds = RunMerger(hidden_states, visual.Under("merger."));
      ops_->Show(visual, "merger", embeds);
      ops_->Show(tap, "model.visual", embeds);
      results.front() = ops_->ToHost(embeds);
    });
    return results;
  }

 private:
  using Block = VisionEncoderWeights::Block;
  using Merger = VisionEncoderWeights::Merger;

  static Norm NormOf(const VisionEncoderWeights::LayerNorm& w, const char* name) {
    return {Norm::Kind::kLayer, kVisionEncoderEps, &w.weight, name, &w.bias};
  }

  // Both halves of a block use the same memory.
  void MakeScratch(int64_t patches) {
    const int64_t hidden = config_.hidden_size, intermediate = config_.intermediate_size;
    const Array memory = ops_->New({patches, std::max(4 * hidden, intermediate)});
    qkv_ = ops_->Cols(memory, 0, 3 * hidden);
    attended_ = {ops_->Cols(memory, 3 * hidden, hidden)};
    mlp_ = ops_->Cols(memory, 0, intermediate);
  }

  // The learned table, resampled to the pictures' grids: [patches, hidden_size].
  Tensor PositionEmbeddings() const {
    const int64_t hidden = config_.hidden_size;
    const auto patches = static_cast<int64_t>(layout_.positions.size());
    Tensor embeddings({patches, hidden});
    compute_.pool.ParallelFor(patches, [&](int64_t patch) {
      const PositionTaps& taps = layout_.positions[static_cast<size_t>(patch)];
      float* const to = embeddings.row(patch);
      for (int64_t corner = 0; corner < 4; ++corner) {
        const float* const from = TableRow(taps, corner);
        const float weight = taps.weights[static_cast<size_t>(corner)];
        for (int64_t i = 0; i < hidden; ++i) to[i] = (corner > 0 ? to[i] : 0.0f) + from[i] * weight;
      }
    });
    return embeddings;
  }
  const float* TableRow(const PositionTaps& taps, int64_t corner) const {
    return weights_.pos_embed.data() + taps.rows[static_cast<size_t>(corner)] * config_.hidden_size;
  }

  void RunAttention(const Block& w, Array& hidden_states, const Tap& tap) {
    const int64_t hidden = config_.hidden_size;
    const Projection qkv{.x = &hidden_states,
                         .norm = NormOf(w.norm1, "norm1"),
                         .products = {{&w.attn.qkv, "attn.qkv", &qkv_}}};
    ops_->Project({&qkv, 1}, tap);
    Joint q = {ops_->Cols(qkv_, 0, hidden)}, k = {ops_->Cols(qkv_, hidden, hidden)};
    const Joint v = {ops_->Cols(qkv_, 2 * hidden, hidden)};
    ops_->RotateHalves(rope_, q[0]);
    ops_->RotateHalves(rope_, k[0]);
    ops_->Attend({.q = &q,
                  .k = &k,
                  .v = &v,
                  .heads = config_.num_heads,
                  .kv_heads = config_.num_heads,
                  .head_dim = config_.head_dim(),
                  .spans = SeparateSpans(layout_.frame_ends)},
                 attended_, tap);
    const GatedAddition proj{
        .x = &attended_[0], .layer = &w.attn.proj, .names = {"attn.proj", "attn"}, .sum = &hidden_states};
    ops_->AddProjected({&proj, 1}, tap);
  }

  void RunMlp(const Block& w, Array& hidden_states, const Tap& tap) {
    const Projection linear_fc1{.x = &hidden_states,
                                .norm = NormOf(w.norm2, "norm2"),
                                .products = {{&w.mlp.linear_fc1, "mlp.linear_fc1", &mlp_}},
                                .activation = Activation::kGeluTanh};
    ops_->Project({&linear_fc1, 1}, tap);
    const GatedAddition linear_fc2{
        .x = &mlp_, .layer = &w.mlp.linear_fc2, .names = {"mlp.linear_fc2", "mlp"}, .sum = &hidden_states};
    ops_->AddProjected({&linear_fc2, 1}, tap);
  }

  // Which of the deepstack mergers reads the output of this block; -1: none.
  int64_t DeepstackMergerOf(int64_t block) const {
    const auto& indexes = config_.deepstack_visual_indexes;
    const auto found = std::find(indexes.begin(), indexes.end(), block);
    return found == indexes.end() ? -1 : found - indexes.begin();
  }

  Tensor RunDeepstackMerger(int64_t index, const Array& hidden_states, const Tap& visual) {
    const Merger& w = weights_.deepstack_merger_list[static_cast<size_t>(index)];
    Array features = MergePatches(w, NormOf(w.norm, "norm"), hidden_states,
                                  visual.Under("deepstack_merger_list.", index, "."));
    ops_->Show(visual.Under("deepstack_merger_list.", index, ""), "", features);
    return ops_->ToHost(features);
  }

  // The hidden states are not needed after it.
  Array RunMerger(Array& hidden_states, const Tap& tap) {
    const Merger& w = weights_.merger;
    ops_->LayerNorm(w.norm.weight, w.norm.bias, kVisionEncoderEps, hidden_states);
    ops_->Show(tap, "norm", hidden_states);
    return MergePatches(w, {}, hidden_states, tap);
  }

  Array MergePatches(const Merger& w, const Norm& norm, const Array& hidden_states, const Tap& tap) {
    const int64_t tokens = hidden_states.dim(0) / config_.merge_unit(), width = config_.merged_width();
    const Array merged_patches = ops_->Reshaped(hidden_states, {tokens, width});
    Array hidden = ops_->New({tokens, width}), merged = ops_->New({tokens, config_.out_hidden_size});
    const Projection linear_fc1{.x = &merged_patches,
                                .norm = norm,
                                .products = {{&w.linear_fc1, "linear_fc1", &hidden}},
                                .activation = Activation::kGelu};
    ops_->Project({&linear_fc1, 1}, tap);
    const Projection linear_fc2{.x = &hidden, .products = {{&w.linear_fc2, "linear_fc2", &merged}}};
    ops_->Project({&linear_fc2, 1}, tap);
    return merged;
  }

  const VisionEncoderWeights& weights_;
  const VisionEncoderConfig& config_;
  const VisionLayout& layout_;
  const Compute& compute_;
  std::unique_ptr<Ops> ops_;
  Rope rope_;
  Array qkv_;       // [patches, 3 · hidden_size]
  Joint attended_;  // [patches, hidden_size]
  Array mlp_;       // [patches, intermediate_size]
};

}  // namespace

VisionEncoder::VisionEncoder(WeightStore store, Precision precision)
    : config_(ReadVisionEncoderConfig(store)),
      store_(std::move(store)),
      weights_(config_, store_, precision) {}

void VisionEncoder::ReleasePages() const {
  backend_->Release();
  store_.ReleasePages();
}

std::vector<Tensor> VisionEncoder::Encode(const Tensor& pixel_values, std::span<const ImageGrid> grids,
                                          const Compute& compute, const Tap& tap) const {
  CheckPatches(pixel_values, grids, config_.spatial_merge_size, config_.patch().values());
  return VisionEncoderPass(*this, MakeVisionLayout(config_, grids), compute).Run(pixel_values, tap);
}

}  // namespace qwen_image::qwen_image_21
