#include "families/qwen_image/text_encoder.h"

#include <array>
#include <cstddef>

#include "core/fail.h"

namespace qwen_image {

TextEncoderWeights::TextEncoderWeights(const TextEncoderConfig& config, WeightStore& store,
                                       Precision precision) {
  WeightBinder binder(store);
  embed_tokens =
      binder.Matrix("model.language_model.embed_tokens.weight", {config.vocab_size, config.hidden_size});
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layers.push_back(BindDecoderLayer(binder, fmt::format("model.language_model.layers.{}.", i),
                                      config.decoder(), DecoderKind::kQwen25, precision));
  }
  norm = binder.Floats("model.language_model.norm.weight", {config.hidden_size});
  binder.AllowUnused("model.visual.*");
  binder.AllowUnused("lm_head.*");
  binder.Finish();
}

namespace {

// One prompt's way through the layers.
class TextEncoderPass {
 public:
  TextEncoderPass(const TextEncoder& model, const Compute& compute)
      : weights_(model.weights()),
        config_(model.config()),
        compute_(compute),
        ops_(model.backend().Start(compute)) {}

  // `tap` listens under "model.language_model.".
  Tensor Run(const Tensor& inputs_embeds /*[1, tokens, hidden_size]*/, const RopeTables& rope,
             const Tap& tap) {
    Tensor result;
    ops_->Run([&] {
      DecoderPass decoder(config_.decoder(), *ops_, rope);
      Array hidden_states = ops_->FromHost(inputs_embeds);
      for (size_t i = 0; i < weights_.layers.size(); ++i) {
        compute_.Continue(i, weights_.layers.size());
        const auto index = static_cast<int64_t>(i);
        decoder.Run(weights_.layers[i], hidden_states, tap.Under("layers.", index, "."));
        ops_->Show(tap.Under("layers.", index, ""), "", hidden_states);
        ops_->Finish(std::array{&hidden_states});
      }
      ops_->RmsNorm(weights_.norm, static_cast<float>(config_.rms_norm_eps), hidden_states);
      ops_->Show(tap, "norm", hidden_states);
      result = ops_->ToHost(hidden_states);
    });
    return result;
  }

 private:
  const TextEncoderWeights& weights_;
  const TextEncoderConfig& config_;
  const Compute& compute_;
  std::unique_ptr<Ops> ops_;
};

}  // namespace

TextEncoder::TextEncoder(WeightStore store, Precision precision)
    : config_(ReadTextEncoderConfig(store)), store_(std::move(store)), weights_(config_, store_, precision) {}

void TextEncoder::ReleasePages() const {
  backend_->Release();
  store_.ReleasePages();
}

Tensor TextEncoder::Encode(const std::vector<int64_t>& input_ids, const PromptImages* images,
                           const Compute& compute, const Tap& tap) const {
  const Tap model = tap.Under("model.language_model.");
  const RopeTables rope = MakeRope(GetRopeIndex(input_ids, images));
  Tensor inputs_embeds = EmbedTokens(weights_.embed_tokens, input_ids, store_.path());
  model("embed_tokens", inputs_embeds);
  if (images) {
    CheckMropeSection();
    SpliceImages(input_ids, *images, store_.path(), inputs_embeds);
  }
  return TextEncoderPass(*this, compute).Run(inputs_embeds, rope, model);
}

}  // namespace qwen_image
