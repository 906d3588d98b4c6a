// One component of a model, as commands that examine files see it: what the families' parts share.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "families/encoders.h"
#include "families/family.h"

namespace qwen_image {

template <typename Opened>
class ComponentPart : public ModelPart {
 public:
  explicit ComponentPart(WeightStore store) : opened_(std::move(store)) {}
  const WeightStore& store() const final { return opened_.store(); }
  const Opened& opened() const { return opened_; }
  Json Config() const override { return store().config().is_object() ? store().config() : ConfigOfTensors(); }

 private:
  virtual Json ConfigOfTensors() const = 0;  // for files that come without config.json

  Opened opened_;
};

// The vision encoder is no part by itself: it belongs to the text encoder.
template <typename TransformerPart, typename TextEncoderPart, typename VaePart>
std::unique_ptr<ModelPart> OpenPartOf(const ModelParts& parts, Component component) {
  const auto store = [&](const std::filesystem::path& path) { return WeightStore(path, component); };
  switch (component) {
    case Component::kTransformer:
      return std::make_unique<TransformerPart>(store(parts.transformer));
    case Component::kTextEncoder:
      return std::make_unique<TextEncoderPart>(store(parts.text_encoder));
    case Component::kVae:
      return std::make_unique<VaePart>(store(parts.vae));
    case Component::kVisionEncoder:
      break;
  }
  Fail(ErrorKind::kInternal, "the {} is no part by itself", NameOf(component));
}

// What is to be said of the vision encoder; `missing`, where there is none. Without that, a missing one is
// what makes edits impossible.
template <typename VisionEncoder, typename TextEncoderConfig>
void ExamineVisionOf(const ModelParts& parts, const TextEncoderConfig& text_encoder,
                     std::optional<HealthFinding> missing, std::vector<HealthFinding>& findings) {
  const auto note = [&](Health health, std::string text) {
    findings.push_back({health, "vision tower", std::move(text)});
  };
  try {
    WeightStore store(parts.vision_encoder, Component::kVisionEncoder);
    if (store.tensors().empty() && missing) return findings.push_back(std::move(*missing));
    const VisionEncoder vision(std::move(store));
    CheckVisionFits(vision, text_encoder);
    note(Health::kGood,
         fmt::format("there: {} blocks of {}", vision.config().depth, vision.config().hidden_size));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBadInput) throw;
    note(Health::kWarning, "edits will not work: " + error.message());
  }
}

}  // namespace qwen_image
