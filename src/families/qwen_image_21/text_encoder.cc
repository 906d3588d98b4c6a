#include "families/qwen_image_21/text_encoder.h"

#include <algorithm>
#include <array>

#include "core/fail.h"

namespace qwen_image::qwen_image_21 {

TextEncoderWeights::TextEncoderWeights(const TextEncoderConfig& config, WeightStore& store,
                                       Precision precision) {
  WeightBinder binder(store);
  embed_tokens =
      binder.Matrix("model.language_model.embed_tokens.weight", {config.vocab_size, config.hidden_size});
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layers.push_back(BindDecoderLayer(binder, fmt::format("model.language_model.layers.{}.", i),
                                      config.decoder(), DecoderKind::kQwen3, precision));
  }
  binder.AllowUnused("model.language_model.norm.weight");  // the pipeline takes what comes before it
  binder.AllowUnused("model.visual.*");
  binder.AllowUnused("lm_head.*");
  binder.Finish();
}

namespace {

// What the first layers add to the hidden states of image tokens.
struct Deepstack {
  std::vector<int64_t> rows;         // the image tokens' places
  std::span<const Tensor> features;  // [rows, hidden_size] each
};

// Shows cosines or sines as transformers has them, [1, tokens, head_dim]: both halves of a head have them
// all. What a listener changes in the first half is taken over.
void ShowRope(const Tap& tap, std::string_view name, Tensor& table /*[tokens, head_dim / 2]*/) {
  if (!tap.Wants(name)) return;
  const int64_t tokens = table.dim(0), half = table.dim(1);
  Tensor shown({1, tokens, 2 * half});
  for (int64_t t = 0; t < tokens; ++t) {
    std::copy_n(table.row(t), half, shown.row(t));
    std::copy_n(table.row(t), half, shown.row(t) + half);
  }
  tap(name, shown);
  for (int64_t t = 0; t < tokens; ++t) std::copy_n(shown.row(t), half, table.row(t));
}

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
             const Deepstack& deepstack, const Tap& tap) {
    Tensor result;
    ops_->Run([&] {
      DecoderPass decoder(config_.decoder(), *ops_, rope);
      Array hidden_states = ops_->FromHost(inputs_embeds);
      for (size_t i = 0; i < weights_.layers.size(); ++i) {
        compute_.Continue(i, weights_.layers.size());
        const auto index = static_cast<int64_t>(i);
        decoder.Run(weights_.layers[i], hidden_states, tap.Under("layers.", index, "."));
        ops_->Show(tap.Under("layers.", index, ""), "", hidden_states);
        if (i < deepstack.features.size()) {
          AddAtRows(deepstack.features[i], deepstack.rows, hidden_states);
          ops_->Show(tap.Under("layers.", index, ""), ":deepstack", hidden_states);
        }
        ops_->Finish(std::array{&hidden_states});
      }
      result = ops_->ToHost(hidden_states);
    });
    return result;
  }

 private:
  // As a sum with zeros everywhere else, which every device can add.
  void AddAtRows(const Tensor& features, const std::vector<int64_t>& rows, Array& hidden_states) {
    Tensor added(hidden_states.shape);
    std::fill_n(added.data(), added.size(), 0.0f);
    for (size_t i = 0; i < rows.size(); ++i)
      std::copy_n(features.row(static_cast<int64_t>(i)), config_.hidden_size, added.row(rows[i]));
    ops_->Add(ops_->FromHost(added), hidden_states);
  }

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

void TextEncoder::CheckDeepstack(std::span<const Tensor> deepstack, const PromptImages& images) const {
  for (const Tensor& features : deepstack) {
    if (features.shape() == images.embeds.shape()) continue;
    Fail(ErrorKind::kBadInput,
         "{}: the vision encoder gives embeddings {}, but features {} for the first layers; they do not "
         "belong together",
         store_.path().string(), ToString(images.embeds.shape()), ToString(features.shape()));
  }
}

Tensor TextEncoder::Encode(const std::vector<int64_t>& input_ids, const PromptImages* images,
                           std::span<const Tensor> deepstack, const Compute& compute, const Tap& tap) const {
  const Tap model = tap.Under("model.language_model.");
  RopeTables rope = MakeRope(config_, GetRopeIndex(input_ids, images));
  Tensor inputs_embeds = EmbedTokens(weights_.embed_tokens, input_ids, store_.path());
  model("embed_tokens", inputs_embeds);
  Deepstack added{.rows = {}, .features = deepstack};
  if (images) {
    SpliceImages(input_ids, *images, store_.path(), inputs_embeds);
    CheckDeepstack(deepstack, *images);
    for (size_t i = 0; i < input_ids.size(); ++i)
      if (input_ids[i] == images->image_token) added.rows.push_back(static_cast<int64_t>(i));
  }
  ShowRope(model, "rotary_emb:cos", rope.cos);
  ShowRope(model, "rotary_emb:sin", rope.sin);
  return TextEncoderPass(*this, compute).Run(inputs_embeds, rope, added, model);
}

}  // namespace qwen_image::qwen_image_21
