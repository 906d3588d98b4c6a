#include "families/qwen_image_21/model.h"

#include <algorithm>

#include "core/fail.h"
#include "families/family.h"
#include "families/qwen_image_21/edit_sizes.h"
#include "families/qwen_image_21/vocabulary.h"
#include "mlx/weight_forms.h"

namespace qwen_image::qwen_image_21 {
namespace {

constexpr int64_t kOfficialArea = 1024 * 1024;

Defaults OfficialDefaults() {
  Defaults defaults;
  defaults.steps = 40;
  defaults.cfg = 1.0;
  return defaults;
}

// Users of every implementation report it, and no other size near it does that.
std::string NoteOnSize(ImageSize drawn, bool edits) {
  if (!edits || drawn.width != 1024 || drawn.height != 1024) return "";
  return "an edit of exactly 1024x1024 is a bad size for this model: it may ignore the instruction or come "
         "out "
         "with noise; 992x992 and 1056x1056 are fine";
}

}  // namespace

void CheckPartsFit(const TextEncoderConfig& text_encoder, const TransformerConfig& transformer,
                   const VaeConfig& vae, const std::filesystem::path& root) {
  if (text_encoder.hidden_size != transformer.context_in_dim) {
    Fail(
        ErrorKind::kBadInput,
        "{}: the text encoder's width is {}, but the transformer expects {}; they belong to different models",
        root.string(), text_encoder.hidden_size, transformer.context_in_dim);
  }
  if (vae.z_dim != transformer.in_channels) {
    Fail(ErrorKind::kBadInput,
         "{}: the VAE has {} latent channels, but the transformer {}; they belong to different models",
         root.string(), vae.z_dim, transformer.in_channels);
  }
}

QwenImage21Model::QwenImage21Model(const ModelParts& parts, const ModelFiles& files,
                                   const ModelOptions& options)
    : precision_(options.precision),
      own_defaults_(ReadModelDefaults(parts.root)),
      variant_(RecognizeVariant(parts, files.variant)),
      variant_name_(variant_.certain ? NameOf(variant_.variant) : ""),
      edit_area_(own_defaults_.vae_area.value_or(kOfficialArea)),
      conditioner_(parts, options.precision),
      denoiser_(WeightStore(parts.transformer, Component::kTransformer), LoraSet(files.loras),
                options.precision),
      autoencoder_(WeightStore(parts.vae, Component::kVae)) {
  SetTraits(parts);
  denoiser_.UseImageToken(conditioner_.image_token());
  Transformer& transformer = denoiser_.transformer();
  CheckPartsFit(conditioner_.text_encoder().config(), transformer.config(), autoencoder_.vae().config(),
                parts.root);
  const DeviceChoice choice = ChooseDevice(options.device);
  if (options.check_memory) CheckDeviceMemory(choice);
  conditioner_.Place(choice);
  transformer.UseBackend(MakeBackend(choice));
  autoencoder_.vae().UseBackend(MakeBackend(choice));
}

void QwenImage21Model::SetTraits(const ModelParts& parts) {
  const bool turbo = variant_.variant == Variant::kTurbo && !variant_.from_index;
  traits_.scheduler = turbo                     ? TurboScheduler()
                      : parts.scheduler.empty() ? OfficialScheduler()
                                                : ReadSchedulerConfig(parts.scheduler);
  traits_.sigmas = variant_.sigmas;
  traits_.defaults = WithOwn(OfficialDefaults(), own_defaults_);
  if (!traits_.sigmas.empty()) traits_.defaults.steps = static_cast<int64_t>(traits_.sigmas.size());
  traits_.geometry = GeometryOf(autoencoder_.vae().config());
  traits_.max_prompt_tokens = kPositions;
  traits_.cuts_prompts = false;
  traits_.plan_edit = [this](std::span<const ImageSize> inputs, bool) {
    return PlanEdit(inputs, edit_area_);
  };
  traits_.note_on_size = NoteOnSize;
}

DeviceChoice QwenImage21Model::ChooseDevice(Device device) const {
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

const Vocabulary& QwenImage21Model::vocabulary() const { return kQwenImage21Vocabulary; }

std::string QwenImage21Model::id() const {
  const std::string family(kQwenImage21Vocabulary.name);
  return variant_.variant == Variant::kTurbo ? family + "-turbo" : family;
}

Json QwenImage21Model::EditIdentity() const { return {{"edit", variant_name_}, {"area", edit_area_}}; }

std::string QwenImage21Model::PipelineClass(const GenerateRequest&) const { return "QwenImage21Pipeline"; }

bool QwenImage21Model::published_size() const {
  const TransformerConfig& config = denoiser_.transformer().config();
  return config.num_layers == 32 && config.inner_dim() == 4096;
}

const WeightStore* QwenImage21Model::StoreOf(Component component) const {
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

MemoryNeed QwenImage21Model::EstimateMemory(const Workload& workload) const {
  const Transformer& transformer = denoiser_.transformer();
  const Vae& vae = autoencoder_.vae();
  int64_t prefix = workload.prompt_tokens;
  for (const EditInputSizes& sizes : workload.references)
    prefix += traits_.geometry.GridOf(sizes.vae).tokens();
  return {.encode = conditioner_.text_encoder().store().total_bytes(),
          .denoise = transformer.total_bytes() +
                     TransformerWorkspace(transformer.config(), prefix,
                                          traits_.geometry.GridOf(workload.picture).tokens()),
          .decode = vae.store().total_bytes() + VaeWorkspace(vae.config(), traits_.geometry, workload),
          .denoise_more = prefix * PrefixCacheBytes(transformer.config(), Keeping::kFloat32)};
}

MlxWeightUse QwenImage21Model::WeightsOnDevice() const {
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

void QwenImage21Model::ReleasePages(std::optional<Component> component) const {
  const auto meant = [&](Component one) { return !component || *component == one; };
  if (meant(Component::kTextEncoder)) conditioner_.ReleasePages();
  if (meant(Component::kTransformer)) denoiser_.transformer().ReleasePages();
  if (meant(Component::kVae)) autoencoder_.vae().ReleasePages();
}

}  // namespace qwen_image::qwen_image_21
