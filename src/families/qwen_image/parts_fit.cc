#include "families/qwen_image/parts_fit.h"

#include "core/fail.h"

namespace qwen_image {

void CheckPartsFit(const TextEncoderConfig& text_encoder, const TransformerConfig& transformer,
                   const VaeConfig& vae, const std::filesystem::path& root) {
  if (text_encoder.hidden_size != transformer.joint_attention_dim) {
    Fail(
        ErrorKind::kBadInput,
        "{}: the text encoder's width is {}, but the transformer expects {}; they belong to different models",
        root.string(), text_encoder.hidden_size, transformer.joint_attention_dim);
  }
  if (vae.z_dim != transformer.out_channels) {
    Fail(ErrorKind::kBadInput,
         "{}: the VAE has {} latent channels, but the transformer {}; they belong to different models",
         root.string(), vae.z_dim, transformer.out_channels);
  }
}

void CheckVisionFits(const VisionEncoder& vision_encoder, const TextEncoderConfig& text_encoder) {
  if (vision_encoder.config().out_hidden_size != text_encoder.hidden_size) {
    Fail(ErrorKind::kBadInput,
         "{}: the vision encoder's output is {} wide, but the text encoder {}; they belong to different "
         "models",
         vision_encoder.store().path().string(), vision_encoder.config().out_hidden_size,
         text_encoder.hidden_size);
  }
}

}  // namespace qwen_image
