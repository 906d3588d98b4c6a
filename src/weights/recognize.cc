#include "weights/recognize.h"

#include <algorithm>

#include "core/fail.h"
#include "families/checkpoint_prefixes.h"
#include "files/gguf.h"

namespace qwen_image {
namespace {

// Models that are refused by name. Beginnings of tensors' names that only these have, in diffusers' and in
// the original names; the first that fits decides.
struct OtherModel {
  std::string_view sign, name;
};
constexpr OtherModel kOtherModels[] = {
    {"time_text_embed.addition_t_embedding.", "Qwen-Image-Layered"},
    {"controlnet_blocks.", "a ControlNet"},
    {"control_img_in.", "a ControlNet"},
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
    {"input_blocks.", "Stable Diffusion 1, 2 or XL"},
    {"down_blocks.0.attentions.", "Stable Diffusion 1, 2 or XL"},
};

// Pipelines that are refused by name: how their classes begin, the first that fits decides.
struct OtherPipeline {
  std::string_view beginning, what;
};
constexpr OtherPipeline kOtherPipelines[] = {
    {"QwenImageLayered", "Layered is not supported yet"},
    {"QwenImageControlNet", "ControlNet is not supported yet"},
    {"QwenImage", "this kind is not supported yet"},
    {"", "qwen-image runs Qwen-Image models"},
};

std::string_view WithoutTransformerPrefix(std::string_view name) {
  for (const std::string_view prefix :
       {kCheckpointTransformer[0], kCheckpointTransformer[1], kTransformerPrefix}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

const OtherModel* FindOtherModel(const WeightFile& file) {
  const OtherModel* found = std::end(kOtherModels);
  for (const auto& [stored_name, tensor] : file.tensors()) {
    const std::string_view name = WithoutTransformerPrefix(stored_name);
    found = std::find_if(std::begin(kOtherModels), found,
                         [&](const OtherModel& other) { return name.starts_with(other.sign); });
  }
  return found == std::end(kOtherModels) ? nullptr : found;
}

template <typename Fits>
bool AnyName(const WeightNames& names, const WeightFile& file, Component component, const Fits& fits) {
  const Renamer rename = names.renamer(component, StoredNames(file), nullptr);
  return std::any_of(file.tensors().begin(), file.tensors().end(),
                     [&](const auto& item) { return fits(rename(item.first)); });
}

// Adds what the file holds of this family.
void AddComponents(const Vocabulary& family, const WeightFile& file, RecognizedFile& found) {
  for (const ComponentSign& sign : family.weights->signs) {
    const auto is_sign = [&](const std::string& name) { return name == sign.tensor; };
    if (!AnyName(*family.weights, file, sign.component, is_sign)) continue;
    found.family = &family;
    found.components.push_back(sign.component);
    found.what += (found.what.empty() ? "" : ", ") + std::string(sign.what);
  }
}

// The family whose vision tower the file holds; null if it has none, or one that does not tell.
const Vocabulary* FamilyOfTower(const WeightFile& file) {
  for (size_t i = Vocabularies().size(); i > 0; --i) {
    const Vocabulary* family = Vocabularies()[i - 1];
    const std::string_view sign = family->weights->vision_sign;
    if (!sign.empty() && AnyName(*family->weights, file, Component::kVisionEncoder,
                                 [&](const std::string& name) { return name == sign; }))
      return family;
  }
  return nullptr;
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
    found.family = FamilyOfTower(file);
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
  // A later family may have all that an earlier one has, and something more.
  for (size_t i = Vocabularies().size(); i > 0 && found.components.empty(); --i)
    AddComponents(*Vocabularies()[i - 1], file, found);
  if (found.components.empty()) {
    found.what = "nothing that is known: it has no part of a Qwen-Image model";
    found.family = FamilyOfTower(file);
  }
  return found;
}

RecognizedFile Recognize(std::span<const std::unique_ptr<WeightFile>> files) {
  const auto place = [](const Vocabulary* family) {
    const auto all = Vocabularies();
    return family ? std::find(all.begin(), all.end(), family) - all.begin() : -1;
  };
  RecognizedFile best;
  for (const auto& file : files) {
    RecognizedFile found = Recognize(*file);
    const bool later = place(found.family) > place(best.family);
    const Vocabulary* family = later ? found.family : best.family;
    if (!best.known() || (!found.components.empty() && (later || best.components.empty())))
      best = std::move(found);
    best.family = family;
  }
  return best;
}

std::vector<std::string_view> StoredNames(const WeightFile& file) {
  std::vector<std::string_view> names;
  for (const auto& [name, tensor] : file.tensors()) names.push_back(name);
  return names;
}

bool HasNamesOf(const WeightFile& file, Component component) {
  return std::any_of(Vocabularies().begin(), Vocabularies().end(), [&](const Vocabulary* family) {
    const auto begins = [&](const std::string& name) {
      const auto& all = family->weights->beginnings;
      return std::any_of(all.begin(), all.end(), [&](const ComponentBeginning& candidate) {
        return candidate.component == component && name.starts_with(candidate.beginning);
      });
    };
    return AnyName(*family->weights, file, component, begins);
  });
}

std::string_view WhyRefused(std::string_view pipeline_class) {
  for (const Vocabulary* family : Vocabularies()) {
    const auto& known = family->weights->pipeline_classes;
    if (std::find(known.begin(), known.end(), pipeline_class) != known.end()) return "";
  }
  return std::find_if(std::begin(kOtherPipelines), std::end(kOtherPipelines),
                      [&](const OtherPipeline& other) { return pipeline_class.starts_with(other.beginning); })
      ->what;
}

RecognizedFile RecognizeFile(const std::filesystem::path& path) { return Recognize(*OpenWeightFile(path)); }

bool HasTokenizer(const std::filesystem::path& path) {
  std::error_code error;
  if (path.extension() != ".gguf" || !std::filesystem::is_regular_file(path, error)) return false;
  return GgufFile(path).StringArray("tokenizer.ggml.tokens").has_value();
}

}  // namespace qwen_image
