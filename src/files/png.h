// PNG pictures in, and their text metadata. They are written by WritePng (qwen_image/image_file.h).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "files/decoded_image.h"
#include "qwen_image/image_file.h"

namespace qwen_image {

// Throws Error kBadInput. `where` names the file in messages.
DecodedImage DecodePng(std::string_view bytes, const std::string& where, const ImageLimits& limits);

// Throw Error kBadInput. Sizes are checked before anything is allocated. Every kind of PNG becomes 8-bit RGB,
// or RGBA if it can be transparent and that is kept.
Image ReadPng(const std::filesystem::path& path, Transparency transparency = Transparency::kOnWhite);
// The text before and behind the pixels, as UTF-8; of equal keywords the first.
std::map<std::string, std::string> ReadPngText(const std::filesystem::path& path);
std::map<std::string, std::string> DecodePngText(std::string_view bytes, const std::string& where);

}  // namespace qwen_image
