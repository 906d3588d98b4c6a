// What the decoders of picture files have in common.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "qwen_image/image_file.h"

namespace qwen_image {

// A picture as its file has it: not turned yet, and with its transparency.
struct DecodedImage {
  int64_t width = 0;
  int64_t height = 0;
  int64_t channels = 3;            // RGB, or 4: RGBA, not premultiplied
  std::vector<uint8_t> pixels;     // [height, width, channels]
  std::string exif;                // may begin with "Exif\0\0"; empty if there is none
  std::string xmp;                 // empty if there is none
  std::vector<std::string> notes;  // what the decoder did that a user should know
};

// Throws Error kBadInput with the size and the limits in its message. `format` is "PNG", "JPEG" or "WebP".
void CheckImageSize(const std::string& where, std::string_view format, int64_t width, int64_t height,
                    const ImageLimits& limits);

bool IsPng(std::string_view bytes);

// For writers of pictures. Throws Error kUsage if the pixels are not as many as the picture says, or a side
// is longer than the format allows.
void CheckPicture(const Image& image, int64_t max_side);

// The note of readers that lay transparent parts on white.
inline constexpr const char* kOnWhiteNote = "transparent parts are laid on white";

// The pixels alone.
Image PixelsOf(DecodedImage image, Transparency transparency);

// Any of the formats, by its first bytes. `where` names the file in messages. Throws Error kBadInput, also
// for pictures of other formats, which it names.
DecodedImage DecodePixels(std::string_view bytes, const std::string& where, const ImageLimits& limits);

}  // namespace qwen_image
