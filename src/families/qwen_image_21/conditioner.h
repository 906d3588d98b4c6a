// Prompts and pictures → embeddings, by Qwen3-VL.
#pragma once

#include "families/encoders.h"
#include "families/model.h"
#include "families/qwen_image_21/text_encoder.h"
#include "families/qwen_image_21/vision_encoder.h"
#include "model/tokenizer.h"
#include "weights/model_parts.h"

namespace qwen_image::qwen_image_21 {

class QwenImage21Conditioner final : public Conditioner {
 public:
  QwenImage21Conditioner(const ModelParts& parts, Precision precision);

  using Both = Encoders<TextEncoder, VisionEncoder>;
  const Both& encoders() const { return encoders_; }
  Both& encoders() { return encoders_; }
  int64_t image_token() const;  // stands for pictures; throws Error kBadInput if the tokenizer has none

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
  Tokenizer tokenizer_;
  Both encoders_;
  VisionProcessorConfig vision_processor_;
};

}  // namespace qwen_image::qwen_image_21
