// What the tests of the VAE share: the model and the numbers of tools/reference/vae21_goldens.py.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "families/qwen_image_21/vae.h"
#include "families/vocabulary.h"
#include "families/weight_names.h"
#include "files/json.h"
#include "files/testing.h"
#include "files/weight_file.h"

namespace qwen_image::qwen_image_21 {

inline const std::filesystem::path kVaeGoldens =
    std::filesystem::path(QWEN_IMAGE_SOURCE_DIR) / "tests/goldens/vae21";

// The script's numbers().
inline Tensor GoldenNumbers(const Shape& shape, int64_t step, float scale) {
  Tensor tensor(shape);
  for (int64_t i = 0; i < tensor.size(); ++i)
    tensor[i] = (static_cast<float>(i * step % 2003) / 1001.0f - 1.0f) * scale;
  return tensor;
}
inline Tensor GoldenPicture(int64_t height, int64_t width) {  // in latents
  return GoldenNumbers({1, kPictureChannels, 16 * height, 16 * width}, 7919, 1.0f);
}
inline Tensor GoldenLatents(int64_t height, int64_t width) {
  return GoldenNumbers({1, 5, 1, height, width}, 104729, 3.0f);
}

inline std::vector<float> ValuesOf(const Tensor& tensor) {
  return {tensor.data(), tensor.data() + tensor.size()};
}

// What the official class computed.
class GoldenTensors {
 public:
  GoldenTensors() : file_(OpenWeightFile(kVaeGoldens / "expected.safetensors")) {}

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

// Knows no more than the class and its own names.
inline constexpr ConfigClass kVaeClass[] = {{Component::kVae, "_class_name", "AutoencoderKLQwenImage21"}};
inline const WeightNames kVaeNames = {
    .model = "Qwen-Image-2.1",
    .renamer = [](Component, std::span<const std::string_view>, const Json&) -> Renamer {
      return [](std::string_view name) { return std::string(name); };
    },
    .config_classes = kVaeClass,
    .describes = [](Component, const Json&) { return true; },
    .unbound_shape =
        [](std::string_view, int64_t, const std::function<int64_t(const std::string&)>&) {
          return std::vector<int64_t>();
        }};
inline const Vocabulary kVaeVocabulary = {.name = "vae21", .weights = &kVaeNames};

// The golden model, to be changed and opened.
struct VaeFiles {
  struct Weight {
    Shape shape;
    std::string bytes;  // of float16
  };

  VaeFiles() {
    const auto file = OpenWeightFile(kVaeGoldens / "vae/diffusion_pytorch_model.safetensors");
    for (const auto& [name, stored] : file->tensors()) {
      EXPECT_EQ(stored.dtype, DType::kF16);
      weights[name] = {stored.shape,
                       std::string(reinterpret_cast<const char*>(stored.bytes.data()), stored.bytes.size())};
    }
    config = ReadJsonFile(kVaeGoldens / "vae/config.json");
  }

  void Zero(const std::string& name, const Shape& shape) {
    weights[name] = {shape, std::string(static_cast<size_t>(ElementCount(shape)) * 2, '\0')};
  }

  WeightStore Open() const {
    const ScopedVocabulary known(kVaeVocabulary);
    Json header;
    std::string data;
    for (const auto& [name, weight] : weights) {
      header[name] = {{"dtype", "F16"},
                      {"shape", weight.shape},
                      {"data_offsets", {data.size(), data.size() + weight.bytes.size()}}};
      data += weight.bytes;
    }
    const TempFolder folder;  // what is opened stays readable
    folder.Write("diffusion_pytorch_model.safetensors", SafetensorsBytes(header.dump(), data));
    folder.Write("config.json", config.dump());
    return WeightStore(folder.path(), Component::kVae);
  }

  std::map<std::string, Weight> weights;
  Json config;
};

}  // namespace qwen_image::qwen_image_21
