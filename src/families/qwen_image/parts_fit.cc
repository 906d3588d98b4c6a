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

}  // namespace qwen_image
