// A loaded model of Qwen-Image: its components behind the interfaces of families/model.h.
#pragma once

#include "families/component_model.h"
#include "families/qwen_image/autoencoder.h"
#include "families/qwen_image/conditioner.h"
#include "families/qwen_image/denoiser.h"
#include "families/qwen_image/edit_model.h"

namespace qwen_image {

class QwenImageModel final
    : public ComponentModel<QwenImageConditioner, QwenImageDenoiser, QwenImageAutoencoder> {
 public:
  QwenImageModel(const ModelParts& parts, const ModelFiles& files, const ModelOptions& options);

  const Vocabulary& vocabulary() const override;
  const std::string& variant() const override { return variant_; }
  std::string id() const override;
  bool edits() const override { return edit_.variant.edits(); }
  Json EditIdentity() const override;
  std::string PipelineClass(const GenerateRequest& request) const override;
  bool published_size() const override;

  MemoryNeed EstimateMemory(const Workload& workload) const override;

 private:
  EditModel edit_;
  std::string variant_;
};

}  // namespace qwen_image
