// The picture that a result begins with (image-to-image, inpainting), and how the result is laid over it.
#pragma once

#include <optional>

#include "core/threads.h"
#include "model/image_processor.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image {

// The request with pictures of so many channels, as the model has them; nothing if they have them already.
// The request was checked before.
std::optional<GenerateRequest> WithPicturesOf(int64_t channels, const GenerateRequest& request);

struct Source {
  Image image;                    // with its margins
  std::optional<GreyImage> mask;  // white is drawn anew; of any size, it covers the whole image
};

// From init_image or, for an edit with a mask or margins, its one input image. Nothing for a request that
// begins with noise alone. Throws Error kUsage for what does not go together.
std::optional<Source> SourceOf(const GenerateRequest& request, ThreadPool& pool);
std::optional<ImageSize> SourceSize(const GenerateRequest& request);  // of its image; the same checks

// The margins continue the pixels at the edge.
Image ExtendCanvas(const Image& image, const Margins& margins);
// The same for a mask, whose margins are white.
GreyImage ExtendMask(const GreyImage& mask, const Margins& margins);

// `drawn` where the mask is white, `original` bit by bit where it is not; all three of one size. Just inside
// its edge the two are mixed, so that no seam shows; of colours, what is visible counts.
Image Blend(const Image& original, const Image& drawn, const GreyImage& mask);

}  // namespace qwen_image
