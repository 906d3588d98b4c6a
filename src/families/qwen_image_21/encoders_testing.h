// What the tests of both encoders share: the models and numbers of tools/reference/conditioner21_goldens.py.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "families/qwen_image_21/text_encoder.h"
#include "families/qwen_image_21/vision_encoder.h"
#include "families/vision_cases_testing.h"

namespace qwen_image::qwen_image_21 {

inline const std::filesystem::path kGoldens =
    std::filesystem::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/conditioner21";
constexpr int64_t kGoldenImageToken = 60;

inline std::vector<VisionCase> ReadCases(const std::string& model) {
  return ReadVisionCaseFile(kGoldens / (model + ".json"));
}
inline VisionCase FindCase(const std::string& model, const std::string& name) {
  return FindVisionCaseIn(ReadCases(model), name);
}
inline GoldenTensors ExpectedOf(const std::string& model) {
  return GoldenTensors(kGoldens / (model + ".expected.safetensors"));
}

inline VisionEncoder LoadVisionEncoder(const std::filesystem::path& path,
                                       Precision precision = Precision::kExact) {
  return VisionEncoder(WeightStore(path, Component::kVisionEncoder), precision);
}
inline TextEncoder LoadTextEncoder(const std::filesystem::path& path,
                                   Precision precision = Precision::kExact) {
  return TextEncoder(WeightStore(path, Component::kTextEncoder), precision);
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
