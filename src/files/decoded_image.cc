#include "files/decoded_image.h"

#include <utility>

#include "core/fail.h"
#include "files/colour.h"
#include "files/jpeg.h"
#include "files/png.h"
#include "files/text.h"
#include "files/webp.h"

namespace qwen_image {
namespace {

using namespace std::string_view_literals;  // for bytes with NULs in them

struct Signature {
  size_t at = 0;
  std::string_view bytes;
  std::string_view format;
};
constexpr Signature kOtherFormats[] = {
    {0, "GIF87a", "a GIF picture"},
    {0, "GIF89a", "a GIF picture"},
    {0, "II*\0"sv, "a TIFF picture"},
    {0, "MM\0*"sv, "a TIFF picture"},
    {0, "II+\0"sv, "a TIFF picture"},
    {0, "MM\0+"sv, "a TIFF picture"},
    {4, "ftypavif", "an AVIF picture"},
    {4, "ftypavis", "an AVIF picture"},
    {4, "ftyphe", "a HEIC picture"},  // heic, heix, hevc, heim, …
    {4, "ftypmif1", "a HEIC picture"},
    {4, "ftypmsf1", "a HEIC picture"},
    {4, "ftyp", "a video or a picture of an unknown kind"},
    {0, "\xff\x0a"sv, "a JPEG XL picture"},
    {4, "JXL \r\n\x87\n", "a JPEG XL picture"},
    {4, "jP  \r\n\x87\n", "a JPEG 2000 picture"},
    {0, "\xff\x4f\xff\x51", "a JPEG 2000 picture"},
    {0, "8BPS", "a Photoshop file"},
    {0, "\0\0\1\0"sv, "an icon"},
    {0, "qoif", "a QOI picture"},
    {0, "v/1\x01", "an OpenEXR picture"},
    {0, "#?RADIANCE", "a Radiance picture"},
    {0, "<svg", "an SVG drawing"},
    {0, "%PDF", "a PDF document"},
};

// Two letters would not be enough; a bitmap also has zeros in a fixed place.
bool IsBmp(std::string_view bytes) {
  return bytes.starts_with("BM") && bytes.size() > 10 && bytes.substr(6, 4) == "\0\0\0\0"sv;
}

[[noreturn]] void Refuse(std::string_view bytes, const std::string& where) {
  constexpr std::string_view kRead = "PNG, JPEG and WebP are read";
  if (bytes.empty()) Fail(ErrorKind::kBadInput, "{} is empty; a picture is expected", where);
  for (const Signature& signature : kOtherFormats) {
    if (bytes.size() > signature.at && bytes.substr(signature.at).starts_with(signature.bytes))
      Fail(ErrorKind::kBadInput, "{} is {}; {}", where, signature.format, kRead);
  }
  if (IsBmp(bytes)) Fail(ErrorKind::kBadInput, "{} is a BMP picture; {}", where, kRead);
  Fail(ErrorKind::kBadInput, "{} is not a picture that can be read: it begins with {}; {}", where,
       Quoted(bytes.substr(0, 16)), kRead);
}

}  // namespace

void CheckImageSize(const std::string& where, std::string_view format, int64_t width, int64_t height,
                    const ImageLimits& limits) {
  if (width >= 1 && height >= 1 && width <= limits.max_side && height <= limits.max_side &&
      width * height <= limits.max_pixels)
    return;
  Fail(ErrorKind::kBadInput,
       "{} is a {} picture of {} x {} pixels; 1 to {} a side and {} in all are accepted", where, format,
       width, height, limits.max_side, limits.max_pixels);
}

bool IsPng(std::string_view bytes) { return bytes.starts_with("\x89PNG"); }

void CheckPicture(const Image& image, int64_t max_side) {
  const bool sides =
      image.width >= 1 && image.height >= 1 && image.width <= max_side && image.height <= max_side;
  if (image.channels != 3 && image.channels != 4)
    Fail(ErrorKind::kUsage, "a picture of {} channels cannot be written; 3 (RGB) and 4 (RGBA) can",
         image.channels);
  if (!sides || image.pixels.size() != static_cast<size_t>(image.width * image.height * image.channels))
    Fail(ErrorKind::kUsage,
         "a picture that says it has {}x{} pixels and holds {} bytes cannot be written; sides are from 1 to "
         "{}, and a pixel has {} bytes",
         image.width, image.height, image.pixels.size(), max_side, image.channels);
}

Image PixelsOf(DecodedImage image, Transparency transparency) {
  Image pixels{image.width, image.height, std::move(image.pixels), image.channels};
  return transparency == Transparency::kKept ? pixels : Flatten(std::move(pixels));
}

DecodedImage DecodePixels(std::string_view bytes, const std::string& where, const ImageLimits& limits) {
  if (IsPng(bytes)) return DecodePng(bytes, where, limits);
  if (bytes.starts_with("\xff\xd8\xff")) return DecodeJpeg(bytes, where, limits);
  if (bytes.starts_with("RIFF") && bytes.substr(0, 12).ends_with("WEBP"))
    return DecodeWebp(bytes, where, limits);
  Refuse(bytes, where);
}

}  // namespace qwen_image
