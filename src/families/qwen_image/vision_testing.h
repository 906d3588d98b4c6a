// What the tests of the vision encoder share: the models and numbers of tools/reference/vision_goldens.py.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "families/qwen_image/text_encoder.h"
#include "families/qwen_image/vision_encoder.h"
#include "files/json.h"
#include "files/testing.h"
#include "files/weight_file.h"

namespace qwen_image {

inline const std::filesystem::path kVisionGoldens =
    std::filesystem::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/vision";
constexpr int64_t kGoldenImageToken = 60;

// A prompt with pictures.
struct VisionCase {
  std::string name;
  std::vector<ImageGrid> grids;
  int64_t pixel_seed = 0;
  std::vector<int64_t> input_ids, position_ids;
};

inline std::vector<VisionCase> ReadVisionCases(const std::string& model) {
  std::vector<VisionCase> cases;
  const Json golden = ReadJsonFile(kVisionGoldens / (model + ".json"));
  for (const Json& row : golden["rows"]) {
    VisionCase c{.name = row["name"],
                 .grids = {},
                 .pixel_seed = row["pixel_seed"],
                 .input_ids = row["input_ids"],
                 .position_ids = {}};
    for (const Json& grid : row["grids"]) c.grids.push_back({grid[0], grid[1], grid[2]});
    for (const Json& axis : row["position_ids"])
      c.position_ids.insert(c.position_ids.end(), axis.begin(), axis.end());
    cases.push_back(std::move(c));
  }
  return cases;
}

inline VisionCase FindVisionCase(const std::string& model, const std::string& name) {
  for (VisionCase& c : ReadVisionCases(model)) {
    if (c.name == name) return std::move(c);
  }
  ADD_FAILURE() << "no case " << name;
  return {};
}

// The script's pixels().
inline Tensor GoldenPixels(const std::vector<ImageGrid>& grids, int64_t patch_values, int64_t seed) {
  int64_t patches = 0;
  for (const ImageGrid& grid : grids) patches += grid.patches();
  Tensor pixels({patches, patch_values});
  for (int64_t i = 0; i < pixels.size(); ++i)
    pixels[i] = (static_cast<float>((i * 7919 + seed * 104729) % 2003) / 1000.0f - 1.0f) / 64.0f;
  return pixels;
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

inline double Nmse(const float* got, const float* want, int64_t count) {
  double error = 0, power = 0;
  for (int64_t i = 0; i < count; ++i) {
    error += std::pow(got[i] - want[i], 2);
    power += std::pow(want[i], 2);
  }
  return error / power;
}

inline bool SameBits(const float* a, const float* b, int64_t count) {
  return std::memcmp(a, b, static_cast<size_t>(count) * sizeof(float)) == 0;
}

// What the official classes computed.
class ExpectedTensors {
 public:
  explicit ExpectedTensors(const std::string& model)
      : file_(OpenWeightFile(kVisionGoldens / (model + ".expected.safetensors"))) {}

  Tensor Get(const std::string& name) const {
    const StoredTensor& stored = file_->tensors().at(name);
    Tensor tensor(stored.shape);
    std::memcpy(tensor.data(), stored.bytes.data(), stored.bytes.size());
    return tensor;
  }
  const std::map<std::string, StoredTensor>& all() const { return file_->tensors(); }

 private:
  std::unique_ptr<WeightFile> file_;
};

}  // namespace qwen_image
