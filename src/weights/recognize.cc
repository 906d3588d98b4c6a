#include "weights/recognize.h"

#include <algorithm>

#include "core/fail.h"
#include "files/gguf.h"
#include "files/text.h"
#include "weights/foreign_names.h"

namespace qwen_image {
namespace {

// A tensor that a component always has.
struct Sign {
  Component component;
  const char* tensor;
  const char* what;
};
constexpr Sign kSigns[] = {
    {Component::kTransformer, "transformer_blocks.0.attn.add_q_proj.weight",
     "the transformer of a Qwen-Image model"},
    {Component::kTextEncoder, "model.language_model.embed_tokens.weight", "a text encoder"},
    {Component::kVae, "decoder.conv_in.weight", "a VAE"},
};

bool HasTensor(const WeightFile& file, Component component, const char* tensor) {
  return std::any_of(file.tensors().begin(), file.tensors().end(),
                     [&](const auto& item) { return DiffusersName(component, item.first) == tensor; });
}

bool IsVisionProjector(const WeightFile& file) {
  const auto metadata = file.metadata().find("general.architecture");
  return metadata != file.metadata().end() && metadata->second == "clip";
}

}  // namespace

bool IsLoraTensor(const std::string& name) {
  constexpr const char* kParts[] = {".lora_A.", ".lora_B.",   ".lora_up.", ".lora_down.",
                                    ".lora.up", ".lora.down", ".lora_A",   ".lora_B"};
  return name.starts_with("lora_unet_") ||
         std::any_of(std::begin(kParts), std::end(kParts),
                     [&](const char* part) { return name.find(part) != name.npos; });
}

RecognizedFile Recognize(const WeightFile& file) {
  RecognizedFile found;
  if (IsVisionProjector(file)) {
    found.what =
        "a vision projector (mmproj): the vision tower of a text encoder without its language model. It is "
        "for editing, which is not supported yet";
    return found;
  }
  for (const auto& [name, tensor] : file.tensors()) {
    if (IsLoraTensor(name))
      return {.components = {}, .lora = true, .what = "a LoRA; add it to a model with --lora"};
    const std::string_view other = OtherModelWith(name);
    if (other.empty()) continue;
    found.what =
        fmt::format("the weights of {} (they have a tensor {}), which is not supported", other, Quoted(name));
    return found;
  }
  for (const Sign& sign : kSigns) {
    if (!HasTensor(file, sign.component, sign.tensor)) continue;
    found.components.push_back(sign.component);
    found.what += (found.what.empty() ? "" : ", ") + std::string(sign.what);
  }
  if (found.components.empty()) found.what = "no part of a Qwen-Image model is in it";
  return found;
}

RecognizedFile RecognizeFile(const std::filesystem::path& path) { return Recognize(*OpenWeightFile(path)); }

bool HasTokenizer(const std::filesystem::path& path) {
  std::error_code error;
  if (path.extension() != ".gguf" || !std::filesystem::is_regular_file(path, error)) return false;
  return GgufFile(path).StringArray("tokenizer.ggml.tokens").has_value();
}

}  // namespace qwen_image
