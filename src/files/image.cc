#include <algorithm>
#include <utility>

#include "files/decoded_image.h"
#include "files/mmap.h"
#include "files/orientation.h"
#include "qwen_image/image_file.h"

namespace qwen_image {
namespace {

bool IsTransparent(const DecodedImage& image) {
  if (image.channels != 4) return false;
  for (size_t i = 3; i < image.pixels.size(); i += 4) {
    if (image.pixels[i] != 255) return true;
  }
  return false;
}

uint8_t Grey(const uint8_t* rgb) {  // ITU-R 601 in fixed point
  return static_cast<uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
}

// What a mask with transparent parts means.
enum class MaskKind { kStrokes, kGreys, kHole };

MaskKind KindOfMask(const DecodedImage& image) {
  const uint8_t* first = nullptr;
  bool one_colour = true, greys = true, black = true;
  for (size_t i = 0; i < image.pixels.size(); i += 4) {
    const uint8_t* pixel = image.pixels.data() + i;
    if (pixel[3] == 0) continue;
    if (!first) first = pixel;
    one_colour = one_colour && std::equal(pixel, pixel + 3, first);
    greys = greys && pixel[0] == pixel[1] && pixel[1] == pixel[2];
    black = black && pixel[0] == 0 && pixel[1] == 0 && pixel[2] == 0;
  }
  if (black) return MaskKind::kHole;
  return one_colour ? MaskKind::kStrokes : greys ? MaskKind::kGreys : MaskKind::kHole;
}

// image: RGBA
std::vector<uint8_t> TransparentMask(const DecodedImage& image, MaskKind kind) {
  std::vector<uint8_t> mask(image.pixels.size() / 4);
  for (size_t i = 0; i < mask.size(); ++i) {
    const uint8_t* pixel = image.pixels.data() + i * 4;
    const int alpha = pixel[3];
    mask[i] = static_cast<uint8_t>(kind == MaskKind::kStrokes ? alpha
                                   : kind == MaskKind::kHole  ? 255 - alpha
                                                              : (pixel[0] * alpha + 127) / 255);
  }
  return mask;
}

const char* NoteOn(MaskKind kind) {
  switch (kind) {
    case MaskKind::kStrokes:
      return "a mask of one colour on a transparent ground: what it covers is redrawn";
    case MaskKind::kGreys:
      return "the mask's transparent parts count as black: they are kept";
    case MaskKind::kHole:
      break;
  }
  return "the mask's transparent parts are redrawn, all else is kept";
}

template <typename Pixels>  // Image or GreyImage
void Turn(const Orientation& orientation, int64_t channels, Pixels& image, std::vector<std::string>& notes) {
  if (orientation.value == 1) return;
  image.pixels = Turned(std::move(image.pixels), image.width, image.height, channels, orientation);
  if (orientation.swaps_sides()) std::swap(image.width, image.height);
  notes.push_back(orientation.Note());
}

// Decodes a file with `decode`, which takes its bytes and its name.
template <typename Decode>
auto ReadWith(const std::filesystem::path& path, const Decode& decode) {
  const MappedFile file(path);
  auto result = decode(file.text(), path.string());
  file.ThrowIfDamaged();
  return result;
}

}  // namespace

ImageFile DecodeImage(std::string_view bytes, const std::string& where, const ImageLimits& limits,
                      Transparency transparency) {
  DecodedImage decoded = DecodePixels(bytes, where, limits);
  ImageFile file{.notes = std::move(decoded.notes), .transparent = IsTransparent(decoded)};
  if (file.transparent && transparency == Transparency::kOnWhite) file.notes.emplace_back(kOnWhiteNote);
  const Orientation orientation = OrientationOf(decoded);
  file.image = PixelsOf(std::move(decoded), transparency);
  Turn(orientation, file.image.channels, file.image, file.notes);
  return file;
}

ImageFile ReadImage(const std::filesystem::path& path, const ImageLimits& limits, Transparency transparency) {
  return ReadWith(path, [&](std::string_view bytes, const std::string& where) {
    return DecodeImage(bytes, where, limits, transparency);
  });
}

GreyImage ToGrey(const Image& image) {
  const auto channels = static_cast<size_t>(image.channels);
  GreyImage grey{image.width, image.height, std::vector<uint8_t>(image.pixels.size() / channels)};
  for (size_t i = 0; i < grey.pixels.size(); ++i) grey.pixels[i] = Grey(image.pixels.data() + i * channels);
  return grey;
}

MaskFile DecodeMask(std::string_view bytes, const std::string& where, const ImageLimits& limits,
                    MaskRule rule) {
  DecodedImage decoded = DecodePixels(bytes, where, limits);
  MaskFile file{.notes = std::move(decoded.notes)};
  const Orientation orientation = OrientationOf(decoded);
  if (IsTransparent(decoded)) {
    const MaskKind kind = rule == MaskRule::kHole ? MaskKind::kHole : KindOfMask(decoded);
    file.notes.emplace_back(NoteOn(kind));
    file.image = {decoded.width, decoded.height, TransparentMask(decoded, kind)};
  } else {
    file.image = ToGrey(PixelsOf(std::move(decoded), Transparency::kOnWhite));
  }
  Turn(orientation, 1, file.image, file.notes);
  return file;
}

MaskFile ReadMask(const std::filesystem::path& path, const ImageLimits& limits) {
  return ReadWith(path, [&](std::string_view bytes, const std::string& where) {
    return DecodeMask(bytes, where, limits);
  });
}

}  // namespace qwen_image
