// Colours as users name them, and pictures that are laid on them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "qwen_image/image.h"

namespace qwen_image {

struct Colour {
  uint8_t red = 255, green = 255, blue = 255;
  bool operator==(const Colour&) const = default;
};

// "#ffffff", or a name of CSS's basic ones, in capitals or not. Nothing for other texts.
std::optional<Colour> ParseColour(std::string_view text);
std::string ColourNames();  // "white, black, …"

// A picture with alpha as it looks on this colour, rounded to the nearest level, as by Pillow's paste; one
// without alpha stays as it is.
Image Flatten(Image image, Colour colour = {});

// With 3 channels: laid on white. With 4: a picture without alpha is opaque.
Image WithChannels(Image image, int64_t channels);

}  // namespace qwen_image
