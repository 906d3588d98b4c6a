// Pictures as files of any format that is written: PNG, JPEG, WebP, each with its texts (settings, marks).
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "qwen_image/image.h"

namespace qwen_image {

enum class PictureFormat { kPng, kJpeg, kWebp };

std::string_view NameOf(PictureFormat format);  // "png", "jpeg", "webp"
std::optional<PictureFormat> FormatNamed(std::string_view name);
// By the ending of the name: .png, .jpg, .jpeg, .webp in any case; no ending is PNG.
std::optional<PictureFormat> FormatOfFile(const std::filesystem::path& path);

// Keywords that have places of their own in EXIF and XMP; all other texts are one JSON object in EXIF's
// comment.
inline constexpr const char *kSoftwareKey = "Software", *kXmpKey = "XML:com.adobe.xmp";
using PictureText = std::map<std::string, std::string>;

struct EncodedAs {
  PictureFormat format = PictureFormat::kPng;
  // 0 to 100, of JPEG and WebP: what is kept. A WebP picture of 100 keeps every pixel.
  int quality = 100;
};

// JPEG has no alpha: transparent parts are laid on white. Throws Error kUsage for a picture whose pixels are
// not as many as it says, or whose sides the format does not have.
std::string EncodePicture(const Image& image, const EncodedAs& as, const PictureText& text);
// As WritePng (qwen_image/image_file.h).
void WritePicture(const std::filesystem::path& path, const Image& image, const EncodedAs& as,
                  const PictureText& text);

// Throw Error kBadInput. A picture of another program has no texts, or its own.
PictureText DecodePictureText(std::string_view bytes, const std::string& where);
PictureText ReadPictureText(const std::filesystem::path& path);

}  // namespace qwen_image
