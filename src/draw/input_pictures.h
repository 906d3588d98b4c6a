// The pictures of a request on their way in: to the vision encoder, which lets the prompt speak of them, and
// through the VAE to latents.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/rng.h"
#include "draw/run.h"
#include "draw/source.h"

namespace qwen_image::draw {

VisionImages LookAtImages(const Run& run, std::span<const Image> images);
// Of all that the embeddings of pictures depend on, beside the weights; empty for none.
std::string DigestOf(const VisionImages& pictures);

// Packed latents of pictures, normalised: [1, tokens, token channels].
struct PictureLatents {
  Tensor references;  // of an edit, one picture after the other; empty: none
  Tensor source;      // of the picture to begin with; empty: none
  Tensor mask;        // 1: redrawn; empty: everything is
};

// `generator` is asked only if there is a source, whose latents are drawn from their distribution; those
// of references alone are its mode.
PictureLatents EncodePictures(const Run& run, std::span<const Image> images,
                              const std::optional<Source>& source, TorchGenerator& generator);

// What the autoencoder makes of picture `index`, as it is given it: [1, pixel channels, h, w].
Tensor EncodePixels(const Run& run, const Tensor& pixels, size_t index);

}  // namespace qwen_image::draw
