// Pictures of users: PNG, JPEG and WebP files of every kind become 8-bit RGB, the right way up.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "files/decoded_image.h"
#include "qwen_image/image.h"

namespace qwen_image {

struct ImageFile {
  RgbImage image;
  std::vector<std::string> notes;  // what was done that the user should know: "CMYK, converted to RGB"
};

// The pixels are those of Pillow's exif_transpose and convert("RGB"), but that transparent parts are laid on
// white (Pillow uncovers whatever colour they have) and that 16-bit greys keep their high bytes (Pillow's
// turn white). Throw Error kBadInput. A file's kind is told by its first bytes, never by its name.
ImageFile ReadImage(const std::filesystem::path& path, const ImageLimits& limits = {});
// The same from memory; `where` names it in messages.
ImageFile DecodeImage(std::string_view bytes, const std::string& where, const ImageLimits& limits = {});

// As Pillow's convert("L").
GreyImage ToGrey(const RgbImage& image);

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
MaskFile ReadMask(const std::filesystem::path& path, const ImageLimits& limits = {});
MaskFile DecodeMask(std::string_view bytes, const std::string& where, const ImageLimits& limits = {},
                    MaskRule rule = MaskRule::kByColours);

}  // namespace qwen_image
