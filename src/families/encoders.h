// A model's text encoder and its vision encoder. Only edits need the second, so it is opened when a picture
// is first looked at.
#pragma once

#include <filesystem>
#include <mutex>
#include <optional>
#include <utility>

#include "core/fail.h"
#include "device/available.h"
#include "families/component.h"
#include "weights/model_parts.h"
#include "weights/store.h"

namespace qwen_image {

// Throws Error kBadInput if the two belong to different models.
template <typename VisionEncoder, typename TextEncoderConfig>
void CheckVisionFits(const VisionEncoder& vision, const TextEncoderConfig& text) {
  if (vision.config().out_hidden_size == text.hidden_size) return;
  Fail(ErrorKind::kBadInput,
       "{}: the vision encoder's output is {} wide, but the text encoder {}; they belong to different models",
       vision.store().path().string(), vision.config().out_hidden_size, text.hidden_size);
}

template <typename TextEncoder, typename VisionEncoder>
class Encoders {
 public:
  Encoders(const ModelParts& parts, Precision precision)
      : precision_(precision),
        text_(WeightStore(parts.text_encoder, Component::kTextEncoder), precision),
        vision_path_(parts.vision_encoder) {}

  const TextEncoder& text() const { return text_; }
  // Throws Error kBadInput if the model has none.
  const VisionEncoder& vision() const {
    const std::lock_guard lock(vision_mutex_);
    if (!vision_) {
      VisionEncoder opened(WeightStore(vision_path_, Component::kVisionEncoder), precision_);
      CheckVisionFits(opened, text_.config());
      vision_.emplace(std::move(opened));
      vision_->UseBackend(device::MakeBackend(device_));
    }
    return *vision_;
  }
  // Calls `use` with the vision encoder, or with null if it was not opened yet.
  template <typename Use>
  auto WithOpenedVision(const Use& use) const {
    const std::lock_guard lock(vision_mutex_);
    return use(vision_ ? &*vision_ : nullptr);
  }

  void Place(const device::DeviceChoice& choice) {
    device_ = choice;
    text_.UseBackend(device::MakeBackend(choice));
  }
  void ReleasePages() const {
    text_.ReleasePages();
    WithOpenedVision([](const VisionEncoder* vision) {
      if (vision) vision->ReleasePages();
    });
  }

 private:
  Precision precision_;
  TextEncoder text_;
  std::filesystem::path vision_path_;
  device::DeviceChoice device_;
  mutable std::mutex vision_mutex_;  // a request can be checked while a picture is drawn
  mutable std::optional<VisionEncoder> vision_;
};

}  // namespace qwen_image
