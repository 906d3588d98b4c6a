// Picture files: PNG, JPEG and WebP of every kind become 8-bit RGB or RGBA, the right way up; PNG is written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "qwen_image/export.h"
#include "qwen_image/image.h"

namespace qwen_image {

// Checked before anything is allocated for the pixels.
struct ImageLimits {
  int64_t max_side = 16384;
  int64_t max_pixels = 100'000'000;
};

// What becomes of transparent parts: they are laid on white, or the picture keeps its alpha channel.
enum class Transparency { kOnWhite, kKept };

struct ImageFile {
  Image image;
  std::vector<std::string> notes;  // what was done that the user should know: "CMYK, converted to RGB"
  bool transparent = false;        // some part of it is not opaque in the file
};

// The pixels are those of Pillow's exif_transpose and convert("RGB"), but that transparent parts are laid on
// white (Pillow uncovers whatever colour they have) and that 16-bit greys keep their high bytes (Pillow's
// turn white). With kKept, a file with an alpha channel or a transparent colour becomes RGBA, as by
// convert("RGBA"); others are RGB. Requests take both: a model without alpha lays its pictures on white.
// Throw Error kBadInput. A file's kind is recognized by its first bytes, never by its name.
QWEN_IMAGE_API ImageFile ReadImage(const std::filesystem::path& path, const ImageLimits& limits = {},
                                   Transparency transparency = Transparency::kOnWhite);
// The same from memory; `where` names it in messages.
QWEN_IMAGE_API ImageFile DecodeImage(std::string_view bytes, const std::string& where,
                                     const ImageLimits& limits = {},
                                     Transparency transparency = Transparency::kOnWhite);

// As Pillow's convert("L"), which does not look at alpha.
QWEN_IMAGE_API GreyImage ToGrey(const Image& image);

struct MaskFile {
  GreyImage image;  // 255 is redrawn, 0 is kept
  std::vector<std::string> notes;
};

// A picture as a mask: white is redrawn, as in ToGrey. Programs that export a mask as transparency agree only
// in part, so what is visible decides:
// - one colour other than black: strokes on a clear ground; the mask is their opacity;
// - greys: a mask in black and white; its transparent parts count as black;
// - other colours, or nothing but black: the picture itself (or a cover) with a hole; the hole is redrawn.
// A note says which it was. Throw Error kBadInput.
enum class MaskRule { kByColours, kHole };  // kHole: the transparent parts are redrawn, whatever the colours
QWEN_IMAGE_API MaskFile ReadMask(const std::filesystem::path& path, const ImageLimits& limits = {});
QWEN_IMAGE_API MaskFile DecodeMask(std::string_view bytes, const std::string& where,
                                   const ImageLimits& limits = {}, MaskRule rule = MaskRule::kByColours);

// Text becomes metadata (UTF-8, iTXt). Written to a temporary name in the same folder and renamed: never a
// partial file under `path`. Nothing is left behind on failure. Throws Error kCannotWrite, and kUsage for an
// image whose pixels are not as many as it says. A drawn picture writes itself: Picture::SavePng.
QWEN_IMAGE_API void WritePng(const std::filesystem::path& path, const Image& image,
                             const std::map<std::string, std::string>& text = {});
// The file's bytes.
QWEN_IMAGE_API std::string EncodePng(const Image& image, const std::map<std::string, std::string>& text = {});

}  // namespace qwen_image
