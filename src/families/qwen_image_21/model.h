// A loaded model of Qwen-Image-2.1: its components behind the interfaces of families/model.h.
#pragma once

#include "families/component_model.h"
#include "families/qwen_image_21/autoencoder.h"
#include "families/qwen_image_21/conditioner.h"
#include "families/qwen_image_21/denoiser.h"
#include "families/qwen_image_21/variant_of_files.h"

namespace qwen_image {

namespace qwen_image_21 {

// Parts of different models put together would only fail deep inside a product of matrices. Throws Error
// kBadInput.
void CheckPartsFit(const TextEncoderConfig& text_encoder, const TransformerConfig& transformer,
                   const VaeConfig& vae, const std::filesystem::path& root);

class QwenImage21Model final
    : public ComponentModel<QwenImage21Conditioner, QwenImage21Denoiser, QwenImage21Autoencoder> {
 public:
  QwenImage21Model(const ModelParts& parts, const ModelFiles& files, const ModelOptions& options);

  const Vocabulary& vocabulary() const override;
  const std::string& variant() const override { return variant_name_; }
  std::string id() const override;
  bool edits() const override { return true; }
  Json EditIdentity() const override;
  std::string PipelineClass(const GenerateRequest& request) const override;
  bool published_size() const override;

  MemoryNeed EstimateMemory(const Workload& workload) const override;

 private:
  void SetTraits(const ModelParts& parts);
  RecognizedVariant variant_;
  std::string variant_name_;
  int64_t edit_area_;  // pixels of an edit's pictures
};

}  // namespace qwen_image_21
}  // namespace qwen_image
