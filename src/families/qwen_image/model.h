// A loaded model of Qwen-Image: its components behind the interfaces of families/model.h.
#pragma once

#include "families/model.h"
#include "families/qwen_image/autoencoder.h"
#include "families/qwen_image/conditioner.h"
#include "families/qwen_image/denoiser.h"
#include "families/qwen_image/edit_model.h"
#include "weights/model_defaults.h"

namespace qwen_image {

struct ModelOptions;  // families/family.h

class QwenImageModel final : public Model {
 public:
  QwenImageModel(const ModelParts& parts, const ModelFiles& files, const ModelOptions& options);

  const Vocabulary& vocabulary() const override;
  const ModelTraits& traits() const override { return traits_; }
  const Conditioner& conditioner() const override { return conditioner_; }
  const Denoiser& denoiser() const override { return denoiser_; }
  const Autoencoder& autoencoder() const override { return autoencoder_; }

  const std::string& variant() const override { return variant_; }
  std::string id() const override;
  bool edits() const override { return edit_.variant.edits(); }
  Json EditIdentity() const override;
  std::string PipelineClass(const GenerateRequest& request) const override;
  bool published_size() const override;

  const WeightStore* StoreOf(Component component) const override;
  const LoraSet& loras() const override { return denoiser_.transformer().loras(); }
  MemoryNeed EstimateMemory(const Workload& workload) const override;
  MlxWeightUse WeightsOnDevice() const override;
  void ReleasePages(std::optional<Component> component) const override;

 private:
  DeviceChoice ChooseDevice(Device device) const;

  Precision precision_;
  ModelDefaults own_defaults_;  // of the model's folder
  ModelTraits traits_;
  QwenImageConditioner conditioner_;
  QwenImageDenoiser denoiser_;
  QwenImageAutoencoder autoencoder_;
  EditModel edit_;
  std::string variant_;
};

}  // namespace qwen_image
