// Qwen-Image as a family: how its files are opened and examined.
#include <fmt/format.h>

#include <algorithm>

#include "families/component_part.h"
#include "families/qwen_image/config_files.h"
#include "families/qwen_image/model.h"
#include "families/qwen_image/parts_fit.h"
#include "families/qwen_image/recognized_variant.h"
#include "families/qwen_image/vocabulary.h"
#include "weights/recognize.h"

namespace qwen_image {
namespace {

class TransformerPart final : public ComponentPart<Transformer> {
 public:
  using ComponentPart::ComponentPart;
  std::string Summary() const override {
    const TransformerConfig& c = opened().config();
    return fmt::format("{} blocks, {} heads of {}", c.num_layers, c.num_attention_heads,
                       c.attention_head_dim);
  }
  Json Config() const override {
    Json config = ComponentPart::Config();
    // Some files say it with a tensor that has no place in a diffusers folder.
    if (opened().config().zero_cond_t) config["zero_cond_t"] = true;
    return config;
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
    return fmt::format("{} latent channels, {} wide", opened().config().z_dim, opened().config().base_dim);
  }
  Json ConfigOfTensors() const override { return VaeConfigJson(opened().config()); }
};

const TransformerConfig& ConfigOf(const OpenedParts& opened) {
  return static_cast<const TransformerPart&>(*opened.transformer).opened().config();
}
const TextEncoderConfig& TextConfigOf(const OpenedParts& opened) {
  return static_cast<const TextEncoderPart&>(*opened.text_encoder).opened().config();
}

void NoteVariant(const RecognizedVariant& found, bool zero_cond_t, std::vector<HealthFinding>& findings) {
  const auto note = [&](Health health, std::string text) {
    findings.push_back({health, "variant", std::move(text)});
  };
  if (found.variant == Variant::kUnknown) {
    note(
        Health::kNote,
        fmt::format("cannot tell: {}. --variant says which it is (edits need that; text to picture does not)",
                    found.how));
  } else if (found.variant == Variant::kEdit2511 && !zero_cond_t) {
    note(Health::kWarning,
         "Edit-2511 without its marker (zero_cond_t in config.json, or the tensor __index_timestep_zero__): "
         "other programs will treat it as Edit-2509");
  } else if (found.variant == Variant::kEdit2509) {
    note(Health::kNote,
         "Edit-2509 by its index; if it is Edit-2511, its zero_cond_t is lost, and --variant edit-2511 says "
         "so");
  }
  if (found.edits() && found.edit != found.variant)
    note(Health::kGood, fmt::format("edits pictures, too, as {} (qwen_image.json)", NameOf(found.edit)));
}

class QwenImage final : public Family {
 public:
  const Vocabulary& vocabulary() const override { return kQwenImageVocabulary; }
  std::string title() const override { return "Qwen-Image"; }
  SchedulerConfig OfficialScheduler(const VariantInfo&) const override {
    return qwen_image::OfficialScheduler();
  }

  bool Recognises(const ModelParts& parts) const override {
    try {
      const WeightStore store(parts.transformer, Component::kTransformer);  // which refuses other models
      return &store.family() == &kQwenImageWeightNames &&
             std::any_of(store.files().begin(), store.files().end(),
                         [](const auto& file) { return HasNamesOf(*file, Component::kTransformer); });
    } catch (const Error&) {
      return false;
    }
  }

  std::unique_ptr<Model> Open(const ModelParts& parts, const ModelFiles& files,
                              const ModelOptions& options) const override {
    return std::make_unique<QwenImageModel>(parts, files, options);
  }

  std::unique_ptr<ModelPart> OpenPart(const ModelParts& parts, Component component) const override {
    return OpenPartOf<TransformerPart, TextEncoderPart, VaePart>(parts, component);
  }

  void CheckFit(const OpenedParts& opened, const std::filesystem::path& root) const override {
    CheckPartsFit(TextConfigOf(opened), ConfigOf(opened),
                  static_cast<const VaePart&>(*opened.vae).opened().config(), root);
  }

  VariantInfo ExamineVariant(const ModelParts& parts, const OpenedParts& opened, const std::string& asked,
                             const std::vector<std::string>& pipelines,
                             std::vector<HealthFinding>* findings) const override {
    const bool zero_cond_t = opened.transformer && ConfigOf(opened).zero_cond_t;
    const RecognizedVariant found = RecognizeVariant(parts, zero_cond_t, asked, pipelines);
    if (findings) NoteVariant(found, zero_cond_t, *findings);
    return {.name = std::string(NameOf(found.variant)),
            .how = found.how,
            .edits = found.edits(),
            .pipeline_class = std::string(PipelineClassOf(found.variant))};
  }

  void ExamineVision(const ModelParts& parts, const OpenedParts& opened, bool edits,
                     std::vector<HealthFinding>& findings) const override {
    std::optional<HealthFinding> missing;
    if (!edits) missing = {Health::kGood, "vision tower", "not there; only edits need it"};
    ExamineVisionOf<VisionEncoder>(parts, TextConfigOf(opened), missing, findings);
  }

  Json ModelIndex(const VariantInfo& variant, bool with_processor) const override {
    return ModelIndexJson(variant.pipeline_class, with_processor);
  }
};

}  // namespace

const Family& QwenImageFamily();  // as table.def calls it

const Family& QwenImageFamily() {
  static const QwenImage family;
  return family;
}

}  // namespace qwen_image
