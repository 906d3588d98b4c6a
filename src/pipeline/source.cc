#include "pipeline/source.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "files/colour.h"
#include "kernels/resize.h"

namespace qwen_image {
namespace {

constexpr uint8_t kWhite = 255, kRedrawnFrom = 128;  // diffusers makes a mask of two values at one half

template <typename Pixels>
Pixels Extend(const Pixels& image, const Margins& margins, int64_t channels, bool white) {
  Pixels extended;
  extended.width = image.width + margins.left + margins.right;
  extended.height = image.height + margins.top + margins.bottom;
  extended.pixels.resize(static_cast<size_t>(extended.width * extended.height * channels), kWhite);
  for (int64_t y = 0; y < extended.height; ++y) {
    const int64_t from_y = std::clamp<int64_t>(y - margins.top, 0, image.height - 1);
    for (int64_t x = 0; x < extended.width; ++x) {
      const int64_t from_x = std::clamp<int64_t>(x - margins.left, 0, image.width - 1);
      if (white && (from_x != x - margins.left || from_y != y - margins.top)) continue;
      std::copy_n(image.pixels.data() + (from_y * image.width + from_x) * channels, channels,
                  extended.pixels.data() + (y * extended.width + x) * channels);
    }
  }
  return extended;
}

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
  const bool white = std::any_of(mask.begin(), mask.end(), [](uint8_t v) { return v >= kRedrawnFrom; });
  if (!white && !request.outpaint.any())
    Fail(ErrorKind::kUsage, "the mask has no white part: nothing would be drawn anew");
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

// The share of white pixels in the square around each white one, which at a straight edge is a little over
// one half: how much of the drawn picture shows there.
std::vector<float> InnerShares(const GreyImage& mask, int64_t radius) {
  const int64_t width = mask.width, height = mask.height;
  std::vector<int64_t> sums(static_cast<size_t>((width + 1) * (height + 1)), 0);  // of all above and left
  const auto sum = [&](int64_t y, int64_t x) -> int64_t& {
    return sums[static_cast<size_t>(y * (width + 1) + x)];
  };
  const auto white = [&](int64_t y, int64_t x) {
    return mask.pixels[static_cast<size_t>(y * width + x)] >= kRedrawnFrom;
  };
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x)
      sum(y + 1, x + 1) = sum(y, x + 1) + sum(y + 1, x) - sum(y, x) + (white(y, x) ? 1 : 0);
  }
  std::vector<float> shares(mask.pixels.size(), 0.0f);
  for (int64_t y = 0; y < height; ++y) {
    const int64_t top = std::max<int64_t>(0, y - radius), bottom = std::min(height, y + radius + 1);
    for (int64_t x = 0; x < width; ++x) {
      if (!white(y, x)) continue;
      const int64_t left = std::max<int64_t>(0, x - radius), right = std::min(width, x + radius + 1);
      const int64_t count = sum(bottom, right) - sum(top, right) - sum(bottom, left) + sum(top, left);
      shares[static_cast<size_t>(y * width + x)] =
          static_cast<float>(count) / static_cast<float>((bottom - top) * (right - left));
    }
  }
  return shares;
}

// Of two pixels that are mixed, how much the second one's colour counts: as much as is seen of it. So the
// colours that lie hidden under transparent parts do not shine through at the edge.
float ShareOfColour(const uint8_t* from, const uint8_t* to, size_t channels, float share) {
  if (channels == 3 || from[3] == to[3] || share >= 1) return share;
  const float seen_from = (1 - share) * static_cast<float>(from[3]);
  const float seen_to = share * static_cast<float>(to[3]);
  return seen_to / (seen_from + seen_to);
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

Image ExtendCanvas(const Image& image, const Margins& margins) {
  Image extended = Extend(image, margins, image.channels, /*white=*/false);
  extended.channels = image.channels;
  return extended;
}

GreyImage ExtendMask(const GreyImage& mask, const Margins& margins) {
  return Extend(mask, margins, 1, /*white=*/true);
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
  return Source{ExtendCanvas(image, request.outpaint), ExtendMask(mask, request.outpaint)};
}

Image Blend(const Image& original, const Image& drawn, const GreyImage& mask) {
  constexpr int64_t kSidesPerRadius = 256;  // 4 pixels of 1024, which is half a latent
  const int64_t radius = std::max<int64_t>(1, std::min(original.width, original.height) / kSidesPerRadius);
  const std::vector<float> shares = InnerShares(mask, radius);
  const auto channels = static_cast<size_t>(original.channels);
  Image blended = original;
  for (size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] <= 0) continue;
    const uint8_t *from = original.pixels.data() + i * channels, *to = drawn.pixels.data() + i * channels;
    uint8_t* out = blended.pixels.data() + i * channels;
    for (size_t c = 0; c < channels; ++c) {
      const float share = c < 3 ? ShareOfColour(from, to, channels, shares[i]) : shares[i];
      const auto a = static_cast<float>(from[c]), b = static_cast<float>(to[c]);
      out[c] = static_cast<uint8_t>(std::lround(a + share * (b - a)));
    }
  }
  return blended;
}

}  // namespace qwen_image
