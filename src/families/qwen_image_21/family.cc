// Qwen-Image-2.1 as a family: how its files are opened and examined.
#include <fmt/format.h>

#include <algorithm>

#include "families/component_part.h"
#include "families/qwen_image_21/config_files.h"
#include "families/qwen_image_21/model.h"
#include "families/qwen_image_21/vocabulary.h"
#include "weights/recognize.h"

namespace qwen_image {
namespace qwen_image_21 {
namespace {

class TransformerPart final : public ComponentPart<Transformer> {
 public:
  using ComponentPart::ComponentPart;
  std::string Summary() const override {
    const TransformerConfig& c = opened().config();
    return fmt::format("{} blocks, {} heads of {}", c.num_layers, c.num_attention_heads,
                       c.attention_head_dim);
  }
  Json ConfigOfTensors() const override { return TransformerConfigJson(opened().config()); }
};

class TextEncoderPart final : public ComponentPart<TextEncoder> {
 public:
  using ComponentPart::ComponentPart;
  std::string Summary() const override {
    const TextEncoderConfig& c = opened().config();
    return fmt::format("{} layers of {}, {} tokens", c.num_hidden_layers, c.hidden_size, c.vocab_size);
  }
  Json ConfigOfTensors() const override { return TextEncoderConfigJson(opened().config(), store()); }
};

class VaePart final : public ComponentPart<Vae> {
 public:
  using ComponentPart::ComponentPart;
  std::string Summary() const override {
    const VaeConfig& c = opened().config();
    return fmt::format("{} latent channels, {} and {} wide", c.z_dim, c.base_dim, c.decoder_base_dim);
  }
  Json ConfigOfTensors() const override { return VaeConfigJson(opened().config()); }
};

const TextEncoderConfig& TextConfigOf(const OpenedParts& opened) {
  return static_cast<const TextEncoderPart&>(*opened.text_encoder).opened().config();
}

class QwenImage21 final : public Family {
 public:
  const Vocabulary& vocabulary() const override { return kQwenImage21Vocabulary; }
  std::string title() const override { return "Qwen-Image-2.1"; }
  SchedulerConfig OfficialScheduler(const VariantInfo& variant) const override {
    return variant.name == NameOf(Variant::kTurbo) ? TurboScheduler() : qwen_image::OfficialScheduler();
  }
  std::string_view tokenizer_folder() const override { return "processor"; }

  bool Recognises(const ModelParts& parts) const override {
    try {
      return &WeightStore(parts.transformer, Component::kTransformer).family() == &kWeightNames;
    } catch (const Error&) {
      const auto& classes = kWeightNames.pipeline_classes;
      return std::find(classes.begin(), classes.end(), parts.pipeline_class) != classes.end();
    }
  }

  std::unique_ptr<Model> Open(const ModelParts& parts, const ModelFiles& files,
                              const ModelOptions& options) const override {
    return std::make_unique<QwenImage21Model>(parts, files, options);
  }

  std::unique_ptr<ModelPart> OpenPart(const ModelParts& parts, Component component) const override {
    return OpenPartOf<TransformerPart, TextEncoderPart, VaePart>(parts, component);
  }

  void CheckFit(const OpenedParts& opened, const std::filesystem::path& root) const override {
    CheckPartsFit(TextConfigOf(opened),
                  static_cast<const TransformerPart&>(*opened.transformer).opened().config(),
                  static_cast<const VaePart&>(*opened.vae).opened().config(), root);
  }

  VariantInfo ExamineVariant(const ModelParts& parts, const OpenedParts&, const std::string& asked,
                             const std::vector<std::string>&,
                             std::vector<HealthFinding>* findings) const override {
    const RecognizedVariant found = RecognizeVariant(parts, asked);
    if (findings && !found.certain)
      findings->push_back(
          {Health::kNote, "variant",
           fmt::format("cannot tell the base model from Turbo: {}. It is drawn as the base model; --variant "
                       "2.1-turbo says that it is Turbo",
                       found.how)});
    if (findings)
      findings->push_back({Health::kNote, "licence",
                           "Qwen-Image-2.1 is published under the Qwen Research License: for research, not "
                           "for commercial use"});
    return {.name = found.certain ? std::string(NameOf(found.variant)) : "",
            .how = found.how,
            .edits = true,
            .pipeline_class = std::string(kWeightNames.pipeline_classes.front()),
            .given = found.given};
  }

  void ExamineVision(const ModelParts& parts, const OpenedParts& opened, bool,
                     std::vector<HealthFinding>& findings) const override {
    const HealthFinding missing{Health::kNote, "vision tower", "not there; edits need it"};
    ExamineVisionOf<VisionEncoder>(parts, TextConfigOf(opened), missing, findings);
  }

  Json ModelIndex(const VariantInfo& variant, bool) const override {
    Json json = {{"_class_name", variant.pipeline_class},
                 {"processor", {"transformers", "Qwen3VLProcessor"}},
                 {"scheduler", {"diffusers", "FlowMatchEulerDiscreteScheduler"}},
                 {"text_encoder", {"transformers", "Qwen3VLForConditionalGeneration"}},
                 {"transformer", {"diffusers", "QwenImage21Transformer2DModel"}},
                 {"vae", {"diffusers", "AutoencoderKLQwenImage21"}}};
    if (variant.name == NameOf(Variant::kTurbo)) json["sample_sigmas"] = TurboSigmas();
    return json;
  }
};

}  // namespace
}  // namespace qwen_image_21

const Family& QwenImage21Family();  // as table.def calls it

const Family& QwenImage21Family() {
  static const qwen_image_21::QwenImage21 family;
  return family;
}

}  // namespace qwen_image
