// What the tests of the vision encoder share: the models and numbers of tools/reference/vision_goldens.py.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "families/qwen_image/text_encoder.h"
#include "families/qwen_image/vision_encoder.h"
#include "families/vision_cases_testing.h"

namespace qwen_image {

inline const std::filesystem::path kVisionGoldens =
    std::filesystem::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/vision";
constexpr int64_t kGoldenImageToken = 60;

inline std::vector<VisionCase> ReadVisionCases(const std::string& model) {
  return ReadVisionCaseFile(kVisionGoldens / (model + ".json"));
}
inline VisionCase FindVisionCase(const std::string& model, const std::string& name) {
  return FindVisionCaseIn(ReadVisionCases(model), name);
}

inline VisionEncoder LoadVisionEncoder(const std::filesystem::path& path,
                                       Precision precision = Precision::kExact) {
  return VisionEncoder(WeightStore(path, Component::kVisionEncoder), precision);
}
inline TextEncoder LoadTextEncoder(const std::filesystem::path& path,
                                   Precision precision = Precision::kExact) {
  return TextEncoder(WeightStore(path, Component::kTextEncoder), precision);
}

inline Tensor EncodeVision(const VisionEncoder& vision, const VisionCase& c, int threads = 2,
                           const Tap& tap = {}) {
  ThreadPool pool(threads);
  const CancelFlag never;
  return vision.Encode(GoldenPixels(c.grids, vision.config().patch_values(), c.pixel_seed), c.grids,
                       {pool, never}, tap);
}

class ExpectedTensors : public GoldenTensors {
 public:
  explicit ExpectedTensors(const std::string& model)
      : GoldenTensors(kVisionGoldens / (model + ".expected.safetensors")) {}
};

}  // namespace qwen_image
