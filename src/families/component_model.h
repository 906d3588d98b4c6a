// A model that is made of a text encoder, a vision encoder, a transformer and a VAE: what every such model
// does with them. A family adds what is its own.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "device/available.h"
#include "families/family.h"
#include "mlx/weight_forms.h"
#include "weights/model_defaults.h"

namespace qwen_image {

// The conditioner has encoders() (see Encoders), the denoiser transformer(), the autoencoder vae().
template <typename ConditionerType, typename DenoiserType, typename AutoencoderType>
class ComponentModel : public Model {
 public:
  const ModelTraits& traits() const final { return traits_; }
  const Conditioner& conditioner() const final { return conditioner_; }
  const Denoiser& denoiser() const final { return denoiser_; }
  const Autoencoder& autoencoder() const final { return autoencoder_; }
  const lora::Set& loras() const final { return denoiser_.transformer().loras(); }

  const WeightStore* StoreOf(Component component) const final {
    switch (component) {
      case Component::kTextEncoder:
        return &conditioner_.encoders().text().store();
      case Component::kTransformer:
        return &denoiser_.transformer().store();
      case Component::kVae:
        return &autoencoder_.vae().store();
      case Component::kVisionEncoder:
        break;
    }
    return conditioner_.encoders().WithOpenedVision(
        [](const auto* vision) { return vision ? &vision->store() : nullptr; });
  }

  MlxWeightUse WeightsOnDevice() const final {
    return conditioner_.encoders().WithOpenedVision([&](const auto* vision) {
      std::vector<const Linear*> layers = conditioner_.encoders().text().weights().AllLayers();
      const auto add = [&](const std::vector<const Linear*>& more) {
        layers.insert(layers.end(), more.begin(), more.end());
      };
      if (vision) add(vision->weights().AllLayers());
      add(denoiser_.transformer().weights().AllLayers());
      return UseOfWeights(layers);
    });
  }

  void ReleasePages(std::optional<Component> component) const final {
    const auto meant = [&](Component one) { return !component || *component == one; };
    if (meant(Component::kTextEncoder)) conditioner_.encoders().ReleasePages();
    if (meant(Component::kTransformer)) denoiser_.transformer().ReleasePages();
    if (meant(Component::kVae)) autoencoder_.vae().ReleasePages();
  }

 protected:
  // `own`: what the family's conditioner takes beside the files.
  template <typename... Own>
  ComponentModel(const ModelParts& parts, const ModelFiles& files, const ModelOptions& options,
                 const Own&... own)
      : own_defaults_(ReadModelDefaults(parts.root)),
        conditioner_(parts, own..., options.precision),
        denoiser_(WeightStore(parts.transformer, Component::kTransformer), lora::Set(files.loras),
                  options.precision),
        autoencoder_(WeightStore(parts.vae, Component::kVae)) {}

  // Where the components compute. Throws Error kOutOfMemory if they do not fit there.
  void Place(const ModelOptions& options) {
    const device::DeviceChoice choice = ChooseDevice(options);
    if (options.check_memory) device::CheckDeviceMemory(choice);
    conditioner_.encoders().Place(choice);
    denoiser_.transformer().UseBackend(device::MakeBackend(choice));
    autoencoder_.vae().UseBackend(device::MakeBackend(choice));
  }

  ModelDefaults own_defaults_;  // of the model's folder
  ModelTraits traits_;
  ConditionerType conditioner_;
  DenoiserType denoiser_;
  AutoencoderType autoencoder_;

 private:
  device::DeviceChoice ChooseDevice(const ModelOptions& options) const {
    device::DeviceChoice choice{options.device, options.precision};
    if (options.device == Device::kCpu) return choice;
    // On the device, where weights may be wider than in their files.
    const int64_t encoder = UseOfWeights(conditioner_.encoders().text().weights().AllLayers()).device_bytes();
    const int64_t denoiser = UseOfWeights(denoiser_.transformer().weights().AllLayers()).device_bytes();
    const int64_t vae = autoencoder_.vae().store().total_bytes();
    choice.total_bytes = encoder + denoiser + vae;
    choice.largest_stage_bytes = std::max({encoder, denoiser, vae});
    return choice;
  }
};

}  // namespace qwen_image
