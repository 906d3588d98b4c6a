// What the tests of both encoders share: the models and numbers of tools/reference/conditioner21_goldens.py.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "families/qwen_image_21/text_encoder.h"
#include "families/qwen_image_21/vision_encoder.h"
#include "families/vision_cases_testing.h"
#include "families/vocabulary.h"
#include "families/weight_names.h"

namespace qwen_image::qwen_image_21 {

inline const std::filesystem::path kGoldens =
    std::filesystem::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/conditioner21";
constexpr int64_t kGoldenImageToken = 60;

// Files of Qwen3-VL with transformers' names.
struct TestNames {
  static Renamer RenamerFor(Component component, std::span<const std::string_view>, const Json&) {
    return [component](std::string_view name) {
      const bool other = component == Component::kVisionEncoder && !name.starts_with("model.visual.");
      return std::string(other ? "" : name);
    };
  }
  static constexpr ComponentSign kSigns[] = {
      {Component::kTextEncoder, "model.language_model.embed_tokens.weight", "a text encoder"}};
  static constexpr ComponentBeginning kBeginnings[] = {{Component::kVisionEncoder, "model.visual."}};
  static constexpr ConfigClass kClasses[] = {{Component::kTextEncoder, "model_type", "qwen3_vl", true},
                                             {Component::kVisionEncoder, "model_type", "qwen3_vl", true}};
  static bool Describes(Component component, const Json& config) {
    return config.contains(component == Component::kVisionEncoder ? "vision_config" : "hidden_size") ||
           config.contains("text_config");
  }
};
inline const WeightNames kTestWeightNames = {.model = "Qwen-Image-2.1",
                                             .renamer = TestNames::RenamerFor,
                                             .signs = TestNames::kSigns,
                                             .beginnings = TestNames::kBeginnings,
                                             .config_classes = TestNames::kClasses,
                                             .describes = TestNames::Describes};
inline const Vocabulary kTestVocabulary = {.name = "qwen-image-2.1 of tests", .weights = &kTestWeightNames};

inline std::vector<VisionCase> ReadCases(const std::string& model) {
  return ReadVisionCaseFile(kGoldens / (model + ".json"));
}
inline VisionCase FindCase(const std::string& model, const std::string& name) {
  return FindVisionCaseIn(ReadCases(model), name);
}
inline GoldenTensors ExpectedOf(const std::string& model) {
  return GoldenTensors(kGoldens / (model + ".expected.safetensors"));
}

inline WeightStore Open(const std::filesystem::path& path, Component component) {
  const ScopedVocabulary known(kTestVocabulary);
  return WeightStore(path, component);
}
inline VisionEncoder LoadVisionEncoder(const std::filesystem::path& path,
                                       Precision precision = Precision::kExact) {
  return VisionEncoder(Open(path, Component::kVisionEncoder), precision);
}
inline TextEncoder LoadTextEncoder(const std::filesystem::path& path,
                                   Precision precision = Precision::kExact) {
  return TextEncoder(Open(path, Component::kTextEncoder), precision);
}

inline std::vector<Tensor> EncodeVision(const VisionEncoder& vision, const VisionCase& c, int threads = 2,
                                        const Tap& tap = {}) {
  ThreadPool pool(threads);
  const CancelFlag never;
  return vision.Encode(GoldenPixels(c.grids, vision.config().patch().values(), c.pixel_seed), c.grids,
                       {pool, never}, tap);
}

// `features` as the vision encoder gives them; none for text alone.
inline Tensor EncodeText(const TextEncoder& text, const VisionCase& c, std::span<const Tensor> features,
                         const Tap& tap = {}, int threads = 2) {
  ThreadPool pool(threads);
  const CancelFlag never;
  const Compute compute{pool, never};
  if (features.empty()) return text.Encode(c.input_ids, compute, tap);
  const PromptImages images{.embeds = features[0], .grids = c.grids, .image_token = kGoldenImageToken};
  return text.Encode(c.input_ids, images, features.subspan(1), compute, tap);
}

}  // namespace qwen_image::qwen_image_21
