// The picture that a result begins with (image-to-image, inpainting).
#pragma once

#include <optional>

#include "core/threads.h"
#include "model/image_processor.h"
#include "qwen_image/qwen_image.h"

namespace qwen_image::draw {

// The request with pictures of so many channels, as the model has them; nothing if they have them already.
// The request was checked before.
std::optional<GenerateRequest> WithPicturesOf(int64_t channels, const GenerateRequest& request);

struct Source {
  Image image;                    // with its margins
  std::optional<GreyImage> mask;  // white is redrawn; it may have any size and covers the whole image
};

// From init_image or, for an edit with a mask or margins, its one input image. Nothing for a request that
// begins with noise alone. Throws Error kUsage for what does not go together.
std::optional<Source> SourceOf(const GenerateRequest& request, ThreadPool& pool);
std::optional<ImageSize> SourceSize(const GenerateRequest& request);  // of its image; the same checks

}  // namespace qwen_image::draw
