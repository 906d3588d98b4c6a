// Weight files: the formats, then what the weight store, `inspect` and the models make of them.
#include <vector>

#include "core/block_format.h"
#include "core/threads.h"
#include "families/qwen_image/text_encoder.h"
#include "families/qwen_image/transformer.h"
#include "families/qwen_image/vae.h"
#include "families/qwen_image/vision_encoder.h"
#include "files/gguf.h"
#include "files/safetensors.h"
#include "inputs.h"
#include "inspect/weights.h"
#include "lora/set.h"
#include "model/tokenizer.h"
#include "qwen_image/cancel.h"
#include "targets.h"
#include "weights/binder.h"
#include "weights/nonfinite.h"

namespace qwen_image {
namespace {

// Every byte is touched, so that a sanitizer sees spans that leave the file.
void TouchAll(const WeightFile& file) {
  volatile unsigned sum = 0;
  for (const auto& [name, tensor] : file.tensors()) {
    for (const std::byte byte : tensor.bytes) sum = sum + std::to_integer<unsigned>(byte);
    const BlockFormat* format = FindBlockFormat(NameOf(tensor.dtype));
    if (!format) continue;
    std::vector<float> values(static_cast<size_t>(ElementCount(tensor.shape)));
    format->decode(tensor.bytes.data(), static_cast<int64_t>(values.size()) / format->values, values.data());
  }
}

void BindAll(WeightStore& store) {
  WeightBinder binder(store);
  std::vector<std::pair<std::string, Shape>> wanted;
  for (const auto& [name, tensor] : store.tensors()) {
    WeightTensor settled = tensor;
    settled.ChooseQuantization();
    Shape shape = settled.shape();
    shape.push_back(1);  // as torch has it and other tools do not
    wanted.emplace_back(name, shape);
  }
  bool matrix = false;
  for (const auto& [name, shape] : wanted) {
    matrix = !matrix;
    if (!matrix) {
      binder.Floats(name, shape);
    } else if (const WeightMatrix bound = binder.Matrix(name, shape); bound.data && bound.rows > 0) {
      std::vector<float> row(static_cast<size_t>(bound.cols));
      for (int64_t r = 0; r < bound.rows; ++r) DecodeRow(bound, r, 0, bound.cols, row.data());
    }
  }
  FindNonFinite({&store}, std::chrono::seconds(5));
  binder.Finish();
}

Component ComponentOf(unsigned number) {
  constexpr Component kAll[] = {Component::kTransformer, Component::kTextEncoder, Component::kVae,
                                Component::kVisionEncoder};
  return kAll[number % std::size(kAll)];
}

}  // namespace

void FuzzSafetensors(std::string_view bytes) {
  const MemoryFile file(bytes);
  TouchAll(SafetensorsFile(file.path()));
}

void FuzzGguf(std::string_view bytes) {
  const MemoryFile input(bytes);
  const GgufFile file(input.path());
  TouchAll(file);
  file.IntArray("comfy.gguf.orig_shape.t");
  Tokenizer(input.path()).Encode("a cat", Tokenizer::SpecialTokens::kParse);
}

void FuzzLora(std::string_view bytes) {
  const MemoryFile file(bytes);
  lora::Set loras({{.path = file.path(), .scale = 0.5}});
  const lora::Contents contents = lora::ReadContents(file.path());
  constexpr int64_t kMaxValues = 1 << 20;  // out · in may be the square of the file's size
  for (const auto& [module, layer] : contents.layers) {
    if (layer.flat || layer.out() * layer.in() > kMaxValues) continue;
    loras.Take(module, layer.out(), layer.in());
    std::vector<float> values(static_cast<size_t>(layer.out() * layer.in()));
    loras.AddTo(module, 0, layer.out(), values.data());
  }
  loras.Finish();
}

void FuzzWeights(std::string_view bytes) {
  const MemoryFile file(bytes);
  WeightStore store(file.path(), ComponentOf(static_cast<unsigned>(bytes.size())));
  BindAll(store);
}

void FuzzInspect(std::string_view bytes) {
  static ThreadPool pool(1);
  const MemoryFile file(bytes);
  const CancelFlag cancel;
  inspect::InspectWeights(file.path(), {}, {pool, cancel, {}});
}

void FuzzComponent(std::string_view bytes) {
  static const ScratchFolder folder;
  constexpr int64_t kMaxLayers = 16;  // more say nothing new and take seconds
  if (bytes.empty()) return;
  const Component component = ComponentOf(static_cast<unsigned char>(bytes[0]));
  const TwoParts parts = SplitAtNul(bytes.substr(1));
  folder.Write("config.json", parts.first);
  folder.Write("model.safetensors", parts.second);
  WeightStore store(folder.path(), component);
  switch (component) {
    case Component::kTransformer:
      if (ReadTransformerConfig(store).num_layers <= kMaxLayers) Transformer{std::move(store)};
      break;
    case Component::kTextEncoder:
      if (ReadTextEncoderConfig(store).num_hidden_layers <= kMaxLayers) TextEncoder{std::move(store)};
      break;
    case Component::kVae:
      Vae{std::move(store)};
      break;
    case Component::kVisionEncoder:
      if (ReadVisionEncoderConfig(store).depth <= kMaxLayers) VisionEncoder{std::move(store)};
      break;
  }
}

}  // namespace qwen_image
