#include "weights/recognize.h"

#include <algorithm>

#include "core/fail.h"
#include "files/gguf.h"
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
    {Component::kTransformer, "txt_norm.weight", "the transformer of a Qwen-Image model"},
    {Component::kTextEncoder, "model.language_model.embed_tokens.weight", "a text encoder"},
    {Component::kVae, "decoder.conv_in.weight", "a VAE"},
};

// Beginnings of tensors' names that only these models have, in diffusers' and in the original names; the
// first that fits decides.
struct OtherModel {
  std::string_view sign, name;
};
constexpr OtherModel kOtherModels[] = {
    {"time_text_embed.addition_t_embedding.", "Qwen-Image-Layered"},
    {"txt_in.text_norm.", "Qwen-Image-2.1"},
    {"controlnet_blocks.", "a ControlNet"},
    {"double_stream_modulation_img.", "Flux 2"},
    {"distilled_guidance_layer.", "Chroma"},
    {"all_x_embedder.", "Z-Image"},
    {"x_pad_token", "Z-Image"},
    {"noise_refiner.", "Lumina or Z-Image"},
    {"time_mod_proj.", "Krea 2"},
    {"joint_transformer_blocks.", "AuraFlow"},
    {"double_stream_blocks.", "HiDream"},
    {"single_transformer_blocks.", "Flux or one of its kind"},
    {"single_blocks.", "Flux or one of its kind"},
    {"double_blocks.", "Flux or one of its kind"},
    {"joint_blocks.", "Stable Diffusion 3"},
    {"context_embedder.", "Stable Diffusion 3"},
    {"condition_embedder.", "Wan"},
    {"blocks.0.cross_attn.", "Wan"},
    {"caption_projection.", "Sana, PixArt or LTX"},
    {"encoder.block.", "T5"},
    {"text_model.", "CLIP"},
    {"model.layers.0.self_attn.q_norm.", "Qwen3"},
    {"input_blocks.", "Stable Diffusion 1, 2 or XL"},
    {"down_blocks.0.attentions.", "Stable Diffusion 1, 2 or XL"},
};

const OtherModel* FindOtherModel(const WeightFile& file) {
  const OtherModel* found = std::end(kOtherModels);
  for (const auto& [stored_name, tensor] : file.tensors()) {
    const std::string name = DiffusersName(Component::kTransformer, stored_name);
    found = std::find_if(std::begin(kOtherModels), found,
                         [&](const OtherModel& other) { return name.starts_with(other.sign); });
  }
  return found == std::end(kOtherModels) ? nullptr : found;
}

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
  constexpr std::string_view kPrefixes[] = {"lora_unet_", "lora_transformer_", "lycoris_"};
  constexpr std::string_view kParts[] = {".lora_A",     ".lora_B",  ".lora_up.",
                                         ".lora_down.", ".lora.up", ".lora.down"};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); }) ||
         std::any_of(std::begin(kParts), std::end(kParts),
                     [&](std::string_view part) { return name.find(part) != name.npos; });
}

std::string_view OtherModelWith(std::string_view name) {
  for (const OtherModel& other : kOtherModels) {
    if (name.starts_with(other.sign)) return other.name;
  }
  return "";
}

RecognizedFile Recognize(const WeightFile& file) {
  RecognizedFile found;
  if (IsVisionProjector(file)) {
    found.vision_projector = true;
    found.what =
        "a vision projector (mmproj): the vision tower of a text encoder without its language model; editing "
        "takes it as the vision encoder";
    return found;
  }
  if (std::any_of(file.tensors().begin(), file.tensors().end(),
                  [](const auto& item) { return IsLoraTensor(item.first); })) {
    return {.components = {}, .lora = true, .what = "a LoRA, which is added to a model"};
  }
  if (const OtherModel* other = FindOtherModel(file)) {
    found.other_model = other->name;
    found.what = fmt::format("weights of {} (a tensor's name begins with \"{}\"), which is not supported{}",
                             other->name, other->sign, other->name.starts_with("Qwen") ? " yet" : "");
    return found;
  }
  for (const Sign& sign : kSigns) {
    if (!HasTensor(file, sign.component, sign.tensor)) continue;
    found.components.push_back(sign.component);
    found.what += (found.what.empty() ? "" : ", ") + std::string(sign.what);
  }
  if (found.components.empty()) found.what = "nothing that is known: it has no part of a Qwen-Image model";
  return found;
}

bool HasNamesOf(const WeightFile& file, Component component) {
  const std::vector<std::string_view> beginnings =
      component == Component::kTransformer
          ? std::vector<std::string_view>{"transformer_blocks.", "img_in.", "txt_", "proj_out."}
      : component == Component::kTextEncoder
          ? std::vector<std::string_view>{"model.language_model.", "model.visual."}
      : component == Component::kVisionEncoder
          ? std::vector<std::string_view>{"model.visual."}
          : std::vector<std::string_view>{"encoder.", "decoder.", "quant_conv.", "post_quant_conv."};
  return std::any_of(file.tensors().begin(), file.tensors().end(), [&](const auto& item) {
    const std::string name = DiffusersName(component, item.first);
    return std::any_of(beginnings.begin(), beginnings.end(),
                       [&](std::string_view beginning) { return name.starts_with(beginning); });
  });
}

RecognizedFile RecognizeFile(const std::filesystem::path& path) { return Recognize(*OpenWeightFile(path)); }

bool HasTokenizer(const std::filesystem::path& path) {
  std::error_code error;
  if (path.extension() != ".gguf" || !std::filesystem::is_regular_file(path, error)) return false;
  return GgufFile(path).StringArray("tokenizer.ggml.tokens").has_value();
}

}  // namespace qwen_image
