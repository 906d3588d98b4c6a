// Prompts and pictures → embeddings, by Qwen2.5-VL.
#pragma once

#include "families/encoders.h"
#include "families/model.h"
#include "families/qwen_image/edit_model.h"
#include "families/qwen_image/text_encoder.h"
#include "families/qwen_image/vision_encoder.h"
#include "model/tokenizer.h"
#include "weights/model_parts.h"

namespace qwen_image {

class QwenImageConditioner final : public Conditioner {
 public:
  // `edit` is looked at when a prompt is encoded, not here.
  QwenImageConditioner(const ModelParts& parts, const EditModel& edit, Precision precision);

  using Both = Encoders<TextEncoder, VisionEncoder>;
  const Both& encoders() const { return encoders_; }
  Both& encoders() { return encoders_; }

  int64_t width() const override { return encoders_.text().config().hidden_size; }
  EncodedPrompt Tokenize(const std::string& text, const VisionImages& pictures,
                         const PromptOptions& options) const override;
  EncodedPrompt TakeIds(std::vector<int64_t> ids, const VisionImages& pictures,
                        const PromptOptions& options) const override;
  VisionImages Look(std::span<const Image> images, std::span<const EditInputSizes> sizes,
                    ThreadPool& pool) const override;
  void NeedVision() const override { encoders_.vision(); }
  void Embed(VisionImages& pictures, const Compute& compute, const Tap& tap) const override;
  Tensor Encode(const EncodedPrompt& prompt, const VisionImages& pictures, const Compute& compute,
                const Tap& tap, const OnPositions& on_positions) const override;

 private:
  const EditModel& edit_;
  Tokenizer tokenizer_;
  Both encoders_;
  VisionProcessorConfig vision_processor_;
};

}  // namespace qwen_image
