#include "families/qwen_image/model.h"

#include <algorithm>

#include "families/family.h"
#include "families/qwen_image/defaults.h"
#include "families/qwen_image/memory.h"
#include "families/qwen_image/parts_fit.h"
#include "families/qwen_image/vocabulary.h"
#include "mlx/weight_forms.h"

namespace qwen_image {

QwenImageModel::QwenImageModel(const ModelParts& parts, const ModelFiles& files, const ModelOptions& options)
    : precision_(options.precision),
      own_defaults_(ReadModelDefaults(parts.root)),
      traits_{.scheduler =
                  parts.scheduler.empty() ? OfficialScheduler() : ReadSchedulerConfig(parts.scheduler)},
      conditioner_(parts, edit_, options.precision),
      denoiser_(WeightStore(parts.transformer, Component::kTransformer), LoraSet(files.loras),
                options.precision),
      autoencoder_(WeightStore(parts.vae, Component::kVae)),
      edit_(RecognizeVariant(parts, denoiser_.transformer().config().zero_cond_t, files.variant,
                             own_defaults_.pipelines),
            own_defaults_),
      variant_(NameOf(edit_.variant.variant)) {
  traits_.defaults = DefaultsFor(own_defaults_, traits_.scheduler, edit_.variant.variant);
  traits_.geometry = GeometryOf(autoencoder_.vae().config());
  traits_.max_prompt_tokens = kTokenizerMaxLength;
  traits_.plan_edit = [this](std::span<const ImageSize> inputs, bool repairs) {
    return edit_.Plan(inputs, repairs);
  };
  Transformer& transformer = denoiser_.transformer();
  CheckPartsFit(conditioner_.text_encoder().config(), transformer.config(), autoencoder_.vae().config(),
                parts.root);
  // A copy that has lost its marker was named by its user.
  if (edit_.variant.variant == Variant::kEdit2511) transformer.UseZeroCondT();
  UseLightning(transformer.loras().applied(), traits_.scheduler, traits_.defaults);
  const DeviceChoice choice = ChooseDevice(options.device);
  if (options.check_memory) CheckDeviceMemory(choice);
  conditioner_.Place(choice);
  transformer.UseBackend(MakeBackend(choice));
  autoencoder_.vae().UseBackend(MakeBackend(choice));
}

DeviceChoice QwenImageModel::ChooseDevice(Device device) const {
  DeviceChoice choice{device, precision_};
  if (device == Device::kCpu) return choice;
  // On the device, where weights may be wider than in their files.
  const int64_t encoder = UseOfWeights(conditioner_.text_encoder().weights().AllLayers()).device_bytes();
  const int64_t denoiser = UseOfWeights(denoiser_.transformer().weights().AllLayers()).device_bytes();
  const int64_t vae = autoencoder_.vae().store().total_bytes();
  choice.total_bytes = encoder + denoiser + vae;
  choice.largest_stage_bytes = std::max({encoder, denoiser, vae});
  return choice;
}

const Vocabulary& QwenImageModel::vocabulary() const { return kQwenImageVocabulary; }

std::string QwenImageModel::id() const {
  const std::string family(kQwenImageVocabulary.name);
  return Edits(edit_.variant.variant) ? family + "-" + variant_ : family;
}

Json QwenImageModel::EditIdentity() const {
  return {{"edit", NameOf(edit_.variant.edit)},
          {"areas", {edit_.areas.vae_area, edit_.areas.condition_area.value_or(0)}}};
}

std::string QwenImageModel::PipelineClass(const GenerateRequest& request) const {
  const bool repairs = request.mask || request.outpaint.any();
  if (!request.input_images.empty())
    return repairs ? "QwenImageEditInpaintPipeline" : std::string(PipelineClassOf(edit_.variant.edit));
  if (!request.init_image) return "QwenImagePipeline";
  return repairs ? "QwenImageInpaintPipeline" : "QwenImageImg2ImgPipeline";
}

bool QwenImageModel::published_size() const {
  const TransformerConfig& config = denoiser_.transformer().config();
  return config.num_layers == 60 && config.inner_dim() == 3072;
}

const WeightStore* QwenImageModel::StoreOf(Component component) const {
  switch (component) {
    case Component::kTextEncoder:
      return &conditioner_.text_encoder().store();
    case Component::kTransformer:
      return &denoiser_.transformer().store();
    case Component::kVae:
      return &autoencoder_.vae().store();
    case Component::kVisionEncoder:
      break;
  }
  return conditioner_.WithOpenedVisionEncoder(
      [](const VisionEncoder* vision) { return vision ? &vision->store() : nullptr; });
}

MemoryNeed QwenImageModel::EstimateMemory(const Workload& workload) const {
  const Transformer& transformer = denoiser_.transformer();
  const Vae& vae = autoencoder_.vae();
  return {.encode = conditioner_.text_encoder().store().total_bytes(),
          .denoise = transformer.total_bytes() +
                     TransformerWorkspace(transformer.config(), traits_.geometry, workload),
          .decode = vae.store().total_bytes() + VaeWorkspace(vae.config(), traits_.geometry, workload)};
}

MlxWeightUse QwenImageModel::WeightsOnDevice() const {
  return conditioner_.WithOpenedVisionEncoder([&](const VisionEncoder* vision) {
    std::vector<const Linear*> layers = conditioner_.text_encoder().weights().AllLayers();
    const auto add = [&](const std::vector<const Linear*>& more) {
      layers.insert(layers.end(), more.begin(), more.end());
    };
    if (vision) add(vision->weights().AllLayers());
    add(denoiser_.transformer().weights().AllLayers());
    return UseOfWeights(layers);
  });
}

void QwenImageModel::ReleasePages(std::optional<Component> component) const {
  const auto meant = [&](Component one) { return !component || *component == one; };
  if (meant(Component::kTextEncoder)) conditioner_.ReleasePages();
  if (meant(Component::kTransformer)) denoiser_.transformer().ReleasePages();
  if (meant(Component::kVae)) autoencoder_.vae().ReleasePages();
}

}  // namespace qwen_image
