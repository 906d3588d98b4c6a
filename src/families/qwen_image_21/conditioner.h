// Prompts and pictures → embeddings, by Qwen3-VL.
#pragma once

#include <filesystem>
#include <mutex>
#include <optional>

#include "device/devices.h"
#include "families/model.h"
#include "families/qwen_image_21/text_encoder.h"
#include "families/qwen_image_21/vision_encoder.h"
#include "model/tokenizer.h"
#include "weights/model_parts.h"

namespace qwen_image::qwen_image_21 {

// Throws Error kBadInput if the two belong to different models.
void CheckVisionFits(const VisionEncoder& vision_encoder, const TextEncoderConfig& text_encoder);

class QwenImage21Conditioner final : public Conditioner {
 public:
  QwenImage21Conditioner(const ModelParts& parts, Precision precision);

  const TextEncoder& text_encoder() const { return text_encoder_; }
  // Opened when first asked for: only edits need it. Throws Error kBadInput if the model has none.
  const VisionEncoder& vision_encoder() const;
  // Calls `use` with the vision encoder, or with null if nobody opened it.
  template <typename Use>
  auto WithOpenedVisionEncoder(const Use& use) const {
    const std::lock_guard lock(vision_mutex_);
    return use(vision_encoder_ ? &*vision_encoder_ : nullptr);
  }
  int64_t image_token() const;  // stands for pictures; throws Error kBadInput if the tokenizer has none
  void Place(const DeviceChoice& choice);
  void ReleasePages() const;

  int64_t width() const override { return text_encoder_.config().hidden_size; }
  EncodedPrompt Tokenize(const std::string& text, const SeenPictures& pictures,
                         const PromptOptions& options) const override;
  EncodedPrompt TakeIds(std::vector<int64_t> ids, const SeenPictures& pictures,
                        const PromptOptions& options) const override;
  SeenPictures Look(std::span<const Image> images, std::span<const EditInputSizes> sizes,
                    ThreadPool& pool) const override;
  void NeedVision() const override { vision_encoder(); }
  void Embed(SeenPictures& pictures, const Compute& compute, const Tap& tap) const override;
  Tensor Encode(const EncodedPrompt& prompt, const SeenPictures& pictures, const Compute& compute,
                const Tap& tap, const OnPositions& on_positions) const override;

 private:
  Precision precision_;
  Tokenizer tokenizer_;
  TextEncoder text_encoder_;
  std::filesystem::path vision_path_;
  VisionProcessorConfig vision_processor_;
  DeviceChoice device_;
  mutable std::mutex vision_mutex_;  // a request can be checked while a picture is drawn
  mutable std::optional<VisionEncoder> vision_encoder_;
};

}  // namespace qwen_image::qwen_image_21
