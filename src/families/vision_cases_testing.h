// What the tests of text encoders with a vision tower share: golden prompts with pictures, golden tensors,
// and weights that are changed and written again.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "files/json.h"
#include "files/testing.h"
#include "files/weight_file.h"
#include "model/image_grid.h"

namespace qwen_image {

// A prompt with pictures.
struct VisionCase {
  std::string name;
  std::vector<ImageGrid> grids;
  int64_t pixel_seed = 0;
  std::vector<int64_t> input_ids, position_ids;
};

inline std::vector<VisionCase> ReadVisionCaseFile(const std::filesystem::path& path) {
  std::vector<VisionCase> cases;
  const Json golden = ReadJsonFile(path);
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

inline VisionCase FindVisionCaseIn(std::vector<VisionCase> cases, const std::string& name) {
  for (VisionCase& c : cases) {
    if (c.name == name) return std::move(c);
  }
  ADD_FAILURE() << "no case " << name;
  return {};
}

// The scripts' pixels().
inline Tensor GoldenPixels(const std::vector<ImageGrid>& grids, int64_t patch_values, int64_t seed) {
  int64_t patches = 0;
  for (const ImageGrid& grid : grids) patches += grid.patches();
  Tensor pixels({patches, patch_values});
  for (int64_t i = 0; i < pixels.size(); ++i)
    pixels[i] = (static_cast<float>((i * 7919 + seed * 104729) % 2003) / 1000.0f - 1.0f) / 64.0f;
  return pixels;
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

// What the official classes computed, as float32.
class GoldenTensors {
 public:
  explicit GoldenTensors(const std::filesystem::path& path) : file_(OpenWeightFile(path)) {}

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

// The weights of a golden model (all of them float16), to be changed and written again.
struct HalfWeight {
  Shape shape;
  std::string bytes;
};
using HalfWeights = std::map<std::string, HalfWeight>;

inline HalfWeights ReadHalfWeights(const std::filesystem::path& path) {
  HalfWeights weights;
  const auto file = OpenWeightFile(path);
  for (const auto& [name, stored] : file->tensors()) {
    EXPECT_EQ(stored.dtype, DType::kF16);
    weights[name] = {stored.shape,
                     std::string(reinterpret_cast<const char*>(stored.bytes.data()), stored.bytes.size())};
  }
  return weights;
}

inline std::string Safetensors(const HalfWeights& weights) {
  Json header;
  std::string data;
  for (const auto& [name, weight] : weights) {
    header[name] = {{"dtype", "F16"},
                    {"shape", weight.shape},
                    {"data_offsets", {data.size(), data.size() + weight.bytes.size()}}};
    data += weight.bytes;
  }
  return SafetensorsBytes(header.dump(), data);
}

}  // namespace qwen_image
