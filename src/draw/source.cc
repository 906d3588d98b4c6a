#include "draw/source.h"

#include <algorithm>

#include "core/fail.h"
#include "files/colour.h"
#include "image/blend.h"
#include "image/canvas.h"
#include "kernels/resize.h"

namespace qwen_image::draw {
namespace {

ImageSize Enlarged(const Image& image, const Margins& margins) {
  constexpr int64_t kMaxSide = 16384;
  for (const int64_t margin : {margins.left, margins.top, margins.right, margins.bottom}) {
    if (margin < 0 || margin > kMaxSide)
      Fail(ErrorKind::kUsage, "margins to outpaint must be from 0 to {} pixels, not {}", kMaxSide, margin);
  }
  const ImageSize size = {image.width + margins.left + margins.right,
                          image.height + margins.top + margins.bottom};
  if (size.width > kMaxSide || size.height > kMaxSide)
    Fail(ErrorKind::kUsage, "with its margins the picture would have {}x{} pixels; sides of {} are the most",
         size.width, size.height, kMaxSide);
  return size;
}

template <typename Pixels>
void CheckPixels(const Pixels& image, int64_t channels, const char* what) {
  constexpr int64_t kMaxSide = int64_t{1} << 20;  // so that no product overflows
  const bool possible =
      image.width >= 1 && image.height >= 1 && image.width <= kMaxSide && image.height <= kMaxSide;
  if (!possible || static_cast<int64_t>(image.pixels.size()) != channels * image.width * image.height)
    Fail(ErrorKind::kUsage, "{} says that it has {}x{} pixels, but holds {} values", what, image.width,
         image.height, image.pixels.size());
}

void CheckImage(const Image& image, const char* what) {
  if (image.channels != 3 && image.channels != 4)
    Fail(ErrorKind::kUsage, "{} has {} channels; 3 (RGB) and 4 (RGBA) are taken", what, image.channels);
  CheckPixels(image, image.channels, what);
}

void CheckAllPixels(const GenerateRequest& request) {
  for (const Image& image : request.input_images) CheckImage(image, "an input image");
  if (request.init_image) CheckImage(*request.init_image, "the initial image");
  if (!request.mask) return;
  CheckPixels(*request.mask, 1, "the mask");
  const auto& mask = request.mask->pixels;
  const bool white =
      std::any_of(mask.begin(), mask.end(), [](uint8_t v) { return v >= image::kRedrawnFrom; });
  if (!white && !request.outpaint.any())
    Fail(ErrorKind::kUsage, "the mask has no white part: nothing would be redrawn");
}

// The image of a source; null if the request begins with noise alone.
const Image* SourceImage(const GenerateRequest& request) {
  const bool edits = !request.input_images.empty(), repairs = request.mask || request.outpaint.any();
  if (edits && request.init_image)
    Fail(ErrorKind::kUsage, "an edit begins with its input image; leave out the initial one");
  if (request.init_image) return &*request.init_image;
  if (edits && repairs) {
    if (request.input_images.size() == 1) return &request.input_images.front();
    Fail(ErrorKind::kUsage, "an edit with a mask or margins takes one input image, not {}",
         request.input_images.size());
  }
  if (repairs)
    Fail(ErrorKind::kUsage, "a mask or margins need a picture to begin with: an initial or an input image");
  if (request.strength)
    Fail(ErrorKind::kUsage, "a strength needs {}",
         edits ? "a mask or margins, when editing" : "a picture to begin with, an initial image");
  return nullptr;
}

}  // namespace

std::optional<GenerateRequest> WithPicturesOf(int64_t channels, const GenerateRequest& request) {
  const auto fits = [&](const Image& image) { return image.channels == channels; };
  if (std::all_of(request.input_images.begin(), request.input_images.end(), fits) &&
      (!request.init_image || fits(*request.init_image)))
    return std::nullopt;
  GenerateRequest suited = request;
  for (Image& image : suited.input_images) image = WithChannels(std::move(image), channels);
  if (suited.init_image) suited.init_image = WithChannels(*std::move(suited.init_image), channels);
  return suited;
}

std::optional<ImageSize> SourceSize(const GenerateRequest& request) {
  CheckAllPixels(request);
  const Image* image = SourceImage(request);
  if (!image) return std::nullopt;
  return Enlarged(*image, request.outpaint);
}

std::optional<Source> SourceOf(const GenerateRequest& request, ThreadPool& pool) {
  if (!SourceSize(request)) return std::nullopt;
  const Image& image = *SourceImage(request);
  if (!request.outpaint.any()) return Source{image, request.mask};
  GreyImage mask{image.width, image.height,
                 std::vector<uint8_t>(static_cast<size_t>(image.width * image.height), 0)};
  if (request.mask) mask = Resize(*request.mask, image.width, image.height, ResizeFilter::kLanczos, pool);
  return Source{image::ExtendCanvas(image, request.outpaint), image::ExtendMask(mask, request.outpaint)};
}

}  // namespace qwen_image::draw
