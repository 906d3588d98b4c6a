// The pictures of a request on their way in: to the vision encoder, which lets the prompt speak of them, and
// through the VAE to latents.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/rng.h"
#include "pipeline/run.h"
#include "pipeline/source.h"

namespace qwen_image {

// The pictures of an edit as the vision encoder sees them. It runs when its embeddings are first asked for:
// not at all if those of the prompts are known.
class SeenPictures {
 public:
  SeenPictures() = default;  // none
  SeenPictures(Tensor pixel_values, std::vector<ImageGrid> grids)
      : pixel_values_(std::move(pixel_values)), grids_(std::move(grids)) {}

  bool any() const { return !grids_.empty(); }
  const std::vector<ImageGrid>& grids() const { return grids_; }
  std::string Digest() const;  // of all that the embeddings depend on, beside the weights
  const Tensor& Embeds(const Pipeline::Impl& model, const Run& run);

 private:
  Tensor pixel_values_;  // [patches, values of a patch]
  std::vector<ImageGrid> grids_;
  std::optional<Tensor> embeds_;  // [tokens, width]
};

SeenPictures LookAtPictures(const Pipeline::Impl& model, const Run& run, std::span<const RgbImage> images);

// Packed latents of pictures, normalised: [1, tokens, 4 · channels].
struct PictureLatents {
  Tensor references;  // of an edit, one picture after the other; empty: none
  Tensor source;      // of the picture to begin with; empty: none
  Tensor mask;        // 1: drawn anew; empty: everything is
};

// `generator` is asked only if there is a source, whose latents are drawn from the VAE's distribution; those
// of references alone are its means.
PictureLatents EncodePictures(const Pipeline::Impl& model, const Run& run, std::span<const RgbImage> images,
                              const std::optional<Source>& source, TorchGenerator& generator);

// The posterior's moments (Vae::Encode) of picture `index`, as the VAE is given it: [1, 3, h, w].
Tensor EncodePixels(const Pipeline::Impl& model, const Run& run, const Tensor& pixels, size_t index);

}  // namespace qwen_image
