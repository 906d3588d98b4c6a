// What tests share: files with weights made up tensor by tensor.
#pragma once

#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "files/json.h"
#include "files/testing.h"

namespace qwen_image {

struct MadeTensor {
  std::string dtype;
  Shape shape;
  std::string bytes;
};
using MadeTensors = std::map<std::string, MadeTensor>;

inline MadeTensor Floats(const Shape& shape, const std::vector<float>& values) {
  std::string bytes(values.size() * 4, '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return {"F32", shape, bytes};
}

inline MadeTensor Constant(const Shape& shape, float value) {
  return Floats(shape, std::vector<float>(static_cast<size_t>(ElementCount(shape)), value));
}

inline MadeTensor Random(const Shape& shape, unsigned seed, float std = 0.05f) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, std);
  std::vector<float> values(static_cast<size_t>(ElementCount(shape)));
  for (float& value : values) value = normal(engine);
  return Floats(shape, values);
}

inline std::string WeightsBytes(const MadeTensors& tensors, const Json& metadata = nullptr) {
  Json header = Json::object();
  if (!metadata.is_null()) header["__metadata__"] = metadata;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = data.size();
    data += tensor.bytes;
    header[name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  return SafetensorsBytes(header.dump(), data);
}

// `blocks` equal blocks with a weight, a bias and a norm each, as nothing is wrong with.
inline MadeTensors GoodBlocks(int blocks) {
  MadeTensors tensors;
  for (int i = 0; i < blocks; ++i) {
    const std::string block = "blocks." + std::to_string(i) + ".";
    const auto seed = static_cast<unsigned>(10 * i);
    tensors[block + "attn.to_q.weight"] = Random({16, 16}, seed + 1);
    tensors[block + "attn.to_q.bias"] = Random({16}, seed + 2);
    tensors[block + "mlp.net.0.weight"] = Random({32, 16}, seed + 3);
    tensors[block + "mlp.net.2.weight"] = Random({16, 32}, seed + 4);
    tensors[block + "norm.weight"] = Random({16}, seed + 5);
  }
  return tensors;
}

}  // namespace qwen_image
