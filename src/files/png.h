// PNG pictures: 8-bit RGB out, with text metadata (UTF-8, iTXt); metadata in.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "files/decoded_image.h"
#include "qwen_image/image.h"

namespace qwen_image {

// Written to a temporary name in the same folder and renamed: never a partial file under `path`. Nothing is
// left behind on failure. Throws Error kCannotWrite.
void WritePng(const std::filesystem::path& path, const RgbImage& image,
              const std::map<std::string, std::string>& text);
std::string EncodePng(const RgbImage& image);  // the file's bytes, without text

// Throws Error kBadInput. `where` names the file in messages.
DecodedImage DecodePng(std::string_view bytes, const std::string& where, const ImageLimits& limits);

// Throw Error kBadInput. Sizes are checked before anything is allocated. Every kind of PNG becomes 8-bit RGB;
// transparent pixels are laid on white.
RgbImage ReadPng(const std::filesystem::path& path);
// The text before and behind the pixels, as UTF-8; of equal keywords the first.
std::map<std::string, std::string> ReadPngText(const std::filesystem::path& path);

}  // namespace qwen_image
