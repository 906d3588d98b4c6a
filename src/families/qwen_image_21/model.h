// A loaded model of Qwen-Image-2.1: its components behind the interfaces of families/model.h.
#pragma once

#include "families/model.h"
#include "families/qwen_image_21/autoencoder.h"
#include "families/qwen_image_21/conditioner.h"
#include "families/qwen_image_21/denoiser.h"
#include "families/qwen_image_21/variant_of_files.h"
#include "weights/model_defaults.h"

namespace qwen_image {

struct ModelOptions;  // families/family.h

namespace qwen_image_21 {

// Parts of different models put together would only fail deep inside a product of matrices. Throws Error
// kBadInput.
void CheckPartsFit(const TextEncoderConfig& text_encoder, const TransformerConfig& transformer,
                   const VaeConfig& vae, const std::filesystem::path& root);

class QwenImage21Model final : public Model {
 public:
  QwenImage21Model(const ModelParts& parts, const ModelFiles& files, const ModelOptions& options);

  const Vocabulary& vocabulary() const override;
  const ModelTraits& traits() const override { return traits_; }
  const Conditioner& conditioner() const override { return conditioner_; }
  const Denoiser& denoiser() const override { return denoiser_; }
  const Autoencoder& autoencoder() const override { return autoencoder_; }

  const std::string& variant() const override { return variant_name_; }
  std::string id() const override;
  bool edits() const override { return true; }
  Json EditIdentity() const override;
  std::string PipelineClass(const GenerateRequest& request) const override;
  bool published_size() const override;

  const WeightStore* StoreOf(Component component) const override;
  const LoraSet& loras() const override { return denoiser_.transformer().loras(); }
  MemoryNeed EstimateMemory(const Workload& workload) const override;
  MlxWeightUse WeightsOnDevice() const override;
  void ReleasePages(std::optional<Component> component) const override;

 private:
  void SetTraits(const ModelParts& parts);
  DeviceChoice ChooseDevice(Device device) const;

  Precision precision_;
  ModelDefaults own_defaults_;  // of the model's folder
  RecognizedVariant variant_;
  std::string variant_name_;
  int64_t edit_area_;  // pixels of an edit's pictures
  ModelTraits traits_;
  QwenImage21Conditioner conditioner_;
  QwenImage21Denoiser denoiser_;
  QwenImage21Autoencoder autoencoder_;
};

}  // namespace qwen_image_21
}  // namespace qwen_image
